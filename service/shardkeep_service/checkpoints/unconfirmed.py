"""What a rebuild found whole without a record of its commit: somebody accepts it, or discards it by deleting it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortInfo, CheckpointState
from shardkeep_service.checkpoints.chunk_ids import all_stored, union_ids, unpack_ids
from shardkeep_service.checkpoints.deletion import note_change
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.reading import not_committed
from shardkeep_service.checkpoints.repository import step_is_committed
from shardkeep_service.errors import Refusal

_DISCARDED = AbortInfo(
    code=ErrorCode.ABORTED_BY_CLIENT,
    reason="it was found whole by a rebuild, without a record of its commit, and discarded",
)


def is_unconfirmed(checkpoint: Checkpoint) -> bool:
    """Whether it waits for somebody to accept or discard it."""
    return checkpoint.state == CheckpointState.UNCONFIRMED.value


def was_discarded(checkpoint: Checkpoint) -> bool:
    """Whether it was unconfirmed and somebody deleted it."""
    return checkpoint.state == CheckpointState.ABORTED.value and checkpoint.abort == _DISCARDED.model_dump()


def accept_now(session: Session, checkpoint: Checkpoint, now: int) -> None:
    """Commits a locked unconfirmed checkpoint at the place it has among the others, if all it needs is there."""
    if not is_unconfirmed(checkpoint):
        raise not_committed(session, checkpoint)
    if step_is_committed(session, checkpoint.attempt_id, checkpoint.step, besides=checkpoint.id):
        raise Refusal(
            ErrorCode.STEP_ALREADY_COMMITTED,
            f"the same attempt has another committed checkpoint of step {checkpoint.step}; delete that one first if"
            f" checkpoint {checkpoint.id} should stand for the step",
            checkpoint_id=checkpoint.id,
        )
    packed = session.scalars(select(ManifestRow.chunk_ids).where(ManifestRow.checkpoint_id == checkpoint.id))
    if checkpoint.quarantined or not all_stored(session, union_ids([unpack_ids(ids) for ids in packed])):
        raise Refusal(
            ErrorCode.CHUNK_DAMAGED,
            f"stored bytes that checkpoint {checkpoint.id} needs are damaged or gone: it cannot be committed",
            checkpoint_id=checkpoint.id,
        )
    checkpoint.state = CheckpointState.COMMITTED.value
    checkpoint.committed_at = now
    note_change(session, checkpoint)


def discard_now(checkpoint: Checkpoint) -> None:
    """Ends a locked unconfirmed checkpoint; its bytes are left to collection."""
    checkpoint.state = CheckpointState.ABORTED.value
    checkpoint.abort = _DISCARDED.model_dump()
    checkpoint.sequence = None
    checkpoint.version += 1
