"""Deleting a committed checkpoint: what flips, under its lock, whoever asks for it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.catalogue.outbox import record_checkpoint
from shardkeep_service.checkpoints.models import Checkpoint


def delete_now(
    session: Session, checkpoint: Checkpoint, *, now: int, reason: str | None = None, deleted_with: str | None = None
) -> None:
    """Flips a locked, committed checkpoint to deleted: restorable until it is purged."""
    assert checkpoint.state == CheckpointState.COMMITTED.value
    checkpoint.state = CheckpointState.DELETED.value
    checkpoint.deleted_at = now
    checkpoint.deletion_reason = reason
    checkpoint.deleted_with = deleted_with
    note_change(session, checkpoint)


def restore_now(session: Session, checkpoint: Checkpoint) -> None:
    """Flips a locked, deleted checkpoint back to committed."""
    assert checkpoint.state == CheckpointState.DELETED.value
    checkpoint.state = CheckpointState.COMMITTED.value
    checkpoint.deleted_at = checkpoint.deletion_reason = checkpoint.deleted_with = None
    note_change(session, checkpoint)


def note_change(session: Session, checkpoint: Checkpoint) -> None:
    """What every change of a kept checkpoint brings: the next version, and a record of it in the bucket."""
    checkpoint.version += 1
    record_checkpoint(session, checkpoint.id)
