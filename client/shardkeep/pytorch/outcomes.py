"""How the saves of a keeper ended: the last one, and every failure, each logged once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from shardkeep.errors import AttemptFenced
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.save_handle import SaveHandle

_LOGGER: Final = logging.getLogger("shardkeep")


@dataclass(frozen=True, slots=True)
class FailedSave:
    """A save that did not commit, and why."""

    step: int
    error: Exception


@dataclass(slots=True)
class _Save:
    """A save on its way (`handle`), or one that failed before there was anything to wait for (`error`)."""

    step: int
    handle: SaveHandle | None = None
    error: Exception | None = None


class SaveOutcomes:
    """The last save and the failures of all. One thread."""

    def __init__(self) -> None:
        self.failures: list[FailedSave] = []
        self._last: _Save | None = None

    @property
    def last_step(self) -> int | None:
        """The step of the last save begun, whatever became of it."""
        return self._last.step if self._last is not None else None

    @contextlib.contextmanager
    def beginning(self, step: int) -> Iterator[Callable[[SaveHandle], None]]:
        """Around the start of a save, which hands its handle in. Keeps what keeps it from starting."""
        self._last = _Save(step)
        try:
            yield self._take_handle
        except Exception as error:
            self._fail(error)
            raise

    def notice(self, *, raise_failures: bool, wait: bool = False) -> None:
        """See whether the last save has failed, with `wait` once it has ended; AttemptFenced is raised in any case."""
        last = self._last
        if last is None or last.error is not None or last.handle is None or not (wait or last.handle.done()):
            return
        self.wait_quietly()
        error = self._last_error()
        if error is not None and (raise_failures or isinstance(error, AttemptFenced)):
            raise error

    def wait(self) -> Checkpoint | None:
        """The last save's checkpoint, None without a save; raises what it failed with."""
        committed = self.wait_quietly()
        if self._last is None or self._last.handle is None:
            if self._last is not None and self._last.error is not None:
                raise self._last.error
            return None
        if not committed:
            assert self._last.error is not None
            raise self._last.error
        return self._last.handle.wait()

    def wait_quietly(self) -> bool:
        """Wait until the last save has ended; whether it is committed."""
        last = self._last
        if last is None or last.error is not None or last.handle is None:
            return False
        try:
            last.handle.wait()
        except Exception as error:  # noqa: BLE001  # whatever ended the upload is kept and raised by those who ask
            self._fail(error)
            return False
        return True

    def forget_last(self) -> None:
        """A new attempt begins: the last save of the one before says nothing about it."""
        self._last = None

    def raise_if_fenced(self) -> None:
        """AttemptFenced if the last save met a newer attempt: this process may never save again."""
        error = self._last_error()
        if isinstance(error, AttemptFenced):
            raise error

    def describe_last(self) -> str:
        """Whether there is a save, for people."""
        last = self._last
        if last is None:
            return "no save was made"
        if last.error is not None:
            return f"the save of step {last.step} failed: {last.error}"
        if last.handle is not None and last.handle.done():
            return f"step {last.step} is saved and committed as {last.handle.checkpoint_id}"
        return f"the save of step {last.step} is not committed yet"

    def _last_error(self) -> Exception | None:
        return self._last.error if self._last is not None else None

    def _take_handle(self, handle: SaveHandle) -> None:
        assert self._last is not None
        self._last.handle = handle

    def _fail(self, error: Exception) -> None:
        assert self._last is not None
        self._last.error = error
        self.failures.append(FailedSave(self._last.step, error))
        _LOGGER.error("the save of step %d failed: %s", self._last.step, error)
