"""How a save ends: set once by the upload, waited for by anyone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shardkeep.planning.reuse import History
from shardkeep.protocol.messages import CheckpointInfo
from shardkeep.uploader.progress import WaitProgress


class PendingSave:
    """The outcome of one rank's save. Thread-safe."""

    def __init__(self, step: int, describe: Callable[[], str]) -> None:
        self.step = step
        self.observed = False
        self._describe = describe
        self._opened = threading.Event()
        self._ended = threading.Event()
        self._checkpoint_id: str | None = None
        self._committed: CheckpointInfo | None = None
        self._history: History | None = None
        self._error: Exception | None = None

    def describe(self) -> str:
        """What it is doing, or how it ended."""
        if not self._ended.is_set():
            return self._describe()
        return "failed" if self._error is not None else f"committed as {self._checkpoint_id}"

    def opened(self, checkpoint_id: str) -> None:
        """The service has given the checkpoint's id."""
        self._checkpoint_id = checkpoint_id
        self._opened.set()

    def prepare_commit(self, info: CheckpointInfo, history: History) -> None:
        """It is committed, and `history` is what this rank stored; told once threads and memory are free."""
        self._committed, self._history = info, history

    def publish_commit(self) -> None:
        """Tell that it is committed."""
        self._end()

    def fail(self, error: Exception) -> None:
        """It failed."""
        self._error = error
        self._end()

    def done(self) -> bool:
        """Whether it is committed or has failed."""
        return self._ended.is_set()

    def committed_history(self) -> History | None:
        """What this rank stored, if it is committed."""
        return self._history

    def checkpoint_id(self) -> str:
        """The checkpoint's id, once the service has given it; raises what kept it from that."""
        self._opened.wait()
        if self._checkpoint_id is None:
            assert self._error is not None
            self.observed = True
            raise self._error
        return self._checkpoint_id

    def wait(self, timeout_seconds: float | None = None) -> CheckpointInfo:
        """The committed checkpoint, or the failure; TimeoutError if neither came in time."""
        if not self.wait_until_done(timeout_seconds, show_progress=True):
            raise TimeoutError(f"the save of step {self.step} is still {self._describe()} after {timeout_seconds} s")
        self.observed = True
        if self._error is not None:
            raise self._error
        assert self._committed is not None
        return self._committed

    def exception(self) -> Exception | None:
        """What it failed with, if it has."""
        self.observed = self.observed or self._ended.is_set()
        return self._error

    def wait_until_done(self, timeout_seconds: float | None = None, *, show_progress: bool) -> bool:
        """Wait however it ends; whether it has."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with WaitProgress(enabled=show_progress) as progress:
            while not self._ended.is_set():
                left = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
                if left <= 0:
                    return False
                self._ended.wait(left)
                progress.show(lambda: f"step {self.step} is {self._describe()}")
        return True

    def _end(self) -> None:
        self._ended.set()
        self._opened.set()
