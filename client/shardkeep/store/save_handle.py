"""A save on its way."""

from __future__ import annotations

from collections.abc import Callable

from shardkeep.protocol.messages import CheckpointInfo
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.uploader.pending_save import PendingSave


class SaveHandle:
    """One save of one rank, going on in background threads until it is committed or has failed."""

    def __init__(self, pending: PendingSave, open_checkpoint: Callable[[CheckpointInfo], Checkpoint]) -> None:
        self._pending = pending
        self._open_checkpoint = open_checkpoint

    @property
    def step(self) -> int:
        """The step being saved."""
        return self._pending.step

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint's id; waits for the service to give it, and raises what kept it from that."""
        return self._pending.checkpoint_id()

    @property
    def observed(self) -> bool:
        """Whether somebody has already been told how it ended."""
        return self._pending.observed

    def done(self) -> bool:
        """Whether it is committed or has failed."""
        return self._pending.done()

    def wait(self, timeout_seconds: float | None = None) -> Checkpoint:
        """The committed checkpoint; SaveFailed, AttemptFenced or ConnectionFailed if there is none.

        TimeoutError after `timeout_seconds`: the save goes on.
        """
        return self._open_checkpoint(self._pending.wait(timeout_seconds))

    def exception(self) -> Exception | None:
        """What it failed with; None while it goes on and when it is committed."""
        return self._pending.exception()

    def __repr__(self) -> str:
        return f"SaveHandle(step={self.step}, {self._pending.describe()})"
