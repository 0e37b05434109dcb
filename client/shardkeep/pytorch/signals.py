"""Signals as wishes: SIGUSR1 asks for a save, SIGTERM for a save and a stop. A handler only counts; `step` acts.

Nothing is saved inside a handler: it may interrupt any bytecode, a backward pass or an upload included.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from shardkeep.pytorch.agreement import Wish

_LOGGER: Final = logging.getLogger("shardkeep")
_WISHES: Final = {signal.SIGUSR1: Wish.SAVE, signal.SIGTERM: Wish.SAVE_AND_STOP}
_Handler = Callable[[int, FrameType | None], object] | int | None


class Wishes:
    """What this rank was asked for by signals and by `ask`, until it is taken. `stop_asked` never goes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = 0
        self._signalled = 0
        """Written by the handler only, which never waits for a lock; everything else just compares."""
        self._taken = (0, 0)
        self._stop_announced = False
        self.stop_asked = False

    def ask(self, *, stop: bool) -> None:
        """Ask from the program; callable from any thread."""
        with self._lock:
            self._asked += 1
            self.stop_asked = self.stop_asked or stop

    def signal(self, wish: Wish) -> None:
        """Ask from a signal handler."""
        self._signalled += 1
        if wish is Wish.SAVE_AND_STOP:
            self.stop_asked = True

    def fulfil(self) -> None:
        """A save begins now: what was asked up to now is no more a wish. A stop is."""
        self._taken = (self._asked, self._signalled)

    def take(self) -> Wish:
        """What was asked since the last call; a stop is handed out once."""
        seen = (self._asked, self._signalled)
        if self.stop_asked and not self._stop_announced:
            self._stop_announced, self._taken = True, seen
            return Wish.SAVE_AND_STOP
        asked = seen != self._taken
        self._taken = seen
        return Wish.SAVE if asked else Wish.NOTHING


class SignalHandlers:
    """Handlers of SIGUSR1 and SIGTERM that feed `wishes`, chain to what was there, and act only in this process."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._pid = os.getpid()
        self._previous: dict[int, _Handler] = {}

    def install(self) -> bool:
        """Whether they are installed now; off the main thread Python allows none, which is logged."""
        if threading.current_thread() is not threading.main_thread():
            _LOGGER.warning(
                "signal handlers are not installed: the keeper was made off the main thread; call "
                "request_save(stop=True) where SIGTERM is noticed"
            )
            return False
        for signum in _WISHES:
            self._previous[signum] = signal.signal(signum, self._handle)
        return True

    def restore(self) -> None:
        """Put the earlier handlers back, unless somebody else replaced these meanwhile or this is a forked child."""
        if os.getpid() != self._pid or threading.current_thread() is not threading.main_thread():
            return
        for signum, previous in self._previous.items():
            if signal.getsignal(signum) == self._handle:
                signal.signal(signum, previous if previous is not None else signal.SIG_DFL)
        self._previous.clear()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        previous = self._previous.get(signum)
        if os.getpid() != self._pid:
            _act_as_before(signum, frame, previous)
            return
        self._wishes.signal(_WISHES[signal.Signals(signum)])
        if callable(previous):
            previous(signum, frame)


def _act_as_before(signum: int, frame: FrameType | None, previous: _Handler) -> None:
    """In a forked child (a loader's worker) these handlers are strangers: do what would have been done without them."""
    if callable(previous):
        previous(signum, frame)
    elif previous != signal.SIG_IGN:
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
