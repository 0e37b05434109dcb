"""From stored chunks to a committed checkpoint: hand in the manifest and wait for all ranks, healing what is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import Conflict, SaveFailed
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointInfo, CheckpointState, StateAnswer
from shardkeep.uploader.failures import error_of_abort

_POLL_SECONDS: Final = 20.0
_HEALINGS: Final = 3
_PAUSE_SECONDS: Final = 0.2


class Committing:
    """One rank's wait for the commit. `heal` sends lost chunks again and gives the manifest that names them."""

    def __init__(
        self,
        service: ServiceClient,
        *,
        checkpoint_id: str,
        rank: int,
        step: int,
        stop: threading.Event,
        heal: Callable[[Sequence[str]], bytes],
        on_state: Callable[[StateAnswer], None],
    ) -> None:
        self._service = service
        self._checkpoint_id = checkpoint_id
        self._rank = rank
        self._step = step
        self._stop = stop
        self._heal = heal
        self._on_state = on_state
        self._healings = 0

    def commit(self, manifest: bytes) -> CheckpointInfo | None:
        """The committed checkpoint; None once stopped; SaveFailed or AttemptFenced if it was aborted."""
        state = self._hand_in(manifest)
        while not self._stop.is_set():
            self._on_state(state)
            if state.state is CheckpointState.COMMITTED:
                return state.checkpoint or self._service.checkpoint(self._checkpoint_id)
            if state.state not in {CheckpointState.OPEN, CheckpointState.VALIDATING}:
                raise error_of_abort(state.abort, step=self._step)
            if state.missing_chunks:
                state = self._healed(state.missing_chunks)
                continue
            state = self._next_state(state)
        return None

    def _hand_in(self, manifest: bytes) -> StateAnswer:
        while True:
            try:
                return self._service.put_manifest(self._checkpoint_id, self._rank, manifest)
            except Conflict as refusal:
                if refusal.code != ErrorCode.CHUNKS_MISSING:
                    raise
                manifest = self._heal_again(refusal.extra.get("chunks", []))

    def _healed(self, missing: Sequence[str]) -> StateAnswer:
        return self._hand_in(self._heal_again(missing))

    def _heal_again(self, missing: Sequence[str]) -> bytes:
        self._healings += 1
        if self._healings > _HEALINGS:
            raise SaveFailed(
                f"step {self._step} was not saved: the service lost chunks {_HEALINGS} times after they were sent "
                f"again ({', '.join(missing[:3])})",
                step=self._step,
                code=ErrorCode.CHUNKS_MISSING,
                rank=self._rank,
            )
        return self._heal(missing)

    def _next_state(self, known: StateAnswer) -> StateAnswer:
        state = self._service.state(
            self._checkpoint_id,
            known=known.state,
            arrived=known.arrived,
            rank=self._rank,
            wait_seconds=_POLL_SECONDS,
        )
        if state == known:
            self._stop.wait(_PAUSE_SECONDS)
        return state
