"""The state of an unfinished checkpoint as ranks see it: one look at the database, answered to many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import AbortInfo, CheckpointInfo, CheckpointState, StateAnswer
from shardkeep_service.checkpoints.models import Checkpoint, RankSession
from shardkeep_service.checkpoints.repository import arrived_ranks, unknown_checkpoint
from shardkeep_service.checkpoints.views import abort_info, checkpoint_info, missing_ranks

WAITING_FOR_LIMIT: Final = 100
"""Ranks that `waiting_for` names."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A checkpoint's state at one moment, with the chunks each rank has to send again."""

    checkpoint_id: str
    project_id: str
    run_id: str
    state: CheckpointState
    arrived: int
    world_size: int
    waiting_for: list[int]
    abort: AbortInfo | None
    missing_chunks: Mapping[int, list[str]]
    checkpoint: CheckpointInfo | None

    def answer(self, rank: int | None) -> StateAnswer:
        """What the rank (or, for None, an onlooker) is told."""
        return StateAnswer(
            checkpoint_id=self.checkpoint_id,
            state=self.state,
            arrived=self.arrived,
            world_size=self.world_size,
            waiting_for=self.waiting_for,
            abort=self.abort,
            missing_chunks=[] if rank is None else self.missing_chunks.get(rank, []),
            checkpoint=self.checkpoint,
        )

    def differs(self, *, known: CheckpointState | None, arrived: int | None, rank: int | None) -> bool:
        """Whether there is news for somebody who knew this much."""
        if known is None or self.state is not known:
            return True
        return (arrived is not None and self.arrived != arrived) or (rank is not None and rank in self.missing_chunks)


def load_snapshot(session: Session, checkpoint_id: str) -> Snapshot:
    """The present state; Refusal `unknown_checkpoint` where it is absent."""
    checkpoint = session.get(Checkpoint, checkpoint_id)
    if checkpoint is None:
        raise unknown_checkpoint()
    waiting: list[int] = []
    missing: dict[int, list[str]] = {}
    if checkpoint.state == CheckpointState.OPEN.value:
        waiting = missing_ranks(
            checkpoint, arrived_ranks(session, [checkpoint_id])[checkpoint_id], limit=WAITING_FOR_LIMIT
        )
        missing = _missing_chunks(session, checkpoint_id)
    return Snapshot(
        checkpoint_id=checkpoint_id,
        project_id=checkpoint.project_id,
        run_id=checkpoint.run_id,
        state=CheckpointState(checkpoint.state),
        arrived=checkpoint.arrived,
        world_size=checkpoint.world_size,
        waiting_for=waiting,
        abort=abort_info(checkpoint),
        missing_chunks=missing,
        checkpoint=checkpoint_info(session, checkpoint_id) if checkpoint.state == CheckpointState.COMMITTED else None,
    )


def _missing_chunks(session: Session, checkpoint_id: str) -> dict[int, list[str]]:
    query = select(RankSession.rank, RankSession.missing_chunks).where(
        RankSession.checkpoint_id == checkpoint_id, RankSession.missing_chunks.is_not(None)
    )
    return {rank: missing for rank, missing in session.execute(query) if missing}
