"""Deleting committed checkpoints: what flips, under their locks, whoever asks for it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.catalogue.outbox import record_checkpoint, record_checkpoints
from shardkeep_service.checkpoints.models import Checkpoint


def delete_now(session: Session, checkpoint: Checkpoint, *, now: int, reason: str | None = None) -> None:
    """Flips a locked, committed checkpoint to deleted: restorable until it is purged."""
    assert checkpoint.state == CheckpointState.COMMITTED.value
    checkpoint.state = CheckpointState.DELETED.value
    checkpoint.deleted_at = now
    checkpoint.deletion_reason = reason
    note_change(session, checkpoint)


def restore_now(session: Session, checkpoint: Checkpoint) -> None:
    """Flips a locked, deleted checkpoint back to committed."""
    assert checkpoint.state == CheckpointState.DELETED.value
    checkpoint.state = CheckpointState.COMMITTED.value
    checkpoint.deleted_at = checkpoint.deletion_reason = checkpoint.deleted_with = None
    note_change(session, checkpoint)


def delete_with_run(session: Session, run_id: str, *, now: int) -> int:
    """Flips all committed checkpoints of a locked run to deleted; gives their number."""
    values = {
        "state": CheckpointState.DELETED.value,
        "deleted_at": now,
        "deletion_reason": None,
        "deleted_with": run_id,
    }
    return _flip_all(session, _of_run(run_id, CheckpointState.COMMITTED), values)


def restore_with_run(session: Session, run_id: str) -> int:
    """Flips what was deleted with a locked run back to committed; gives their number."""
    values = {
        "state": CheckpointState.COMMITTED.value, "deleted_at": None, "deletion_reason": None, "deleted_with": None,
    }  # fmt: skip
    deleted_with_it = (*_of_run(run_id, CheckpointState.DELETED), Checkpoint.deleted_with == run_id)
    return _flip_all(session, deleted_with_it, values)


def _of_run(run_id: str, state: CheckpointState) -> tuple[ColumnElement[bool], ...]:
    return (Checkpoint.run_id == run_id, Checkpoint.state == state.value)


def _flip_all(session: Session, conditions: tuple[ColumnElement[bool], ...], values: dict[str, Any]) -> int:
    """In one statement, so that the database changes the sums of the run once, however many there are.

    None of them may have been loaded in this session: that one would stay as it was.
    """
    locked = select(Checkpoint.id).where(*conditions).order_by(Checkpoint.id).with_for_update(key_share=True)
    session.execute(locked).all()  # in the order in which everybody locks several
    flipped = session.scalars(
        update(Checkpoint).where(*conditions).values(**values, version=Checkpoint.version + 1).returning(Checkpoint.id),
        execution_options={"synchronize_session": False},
    ).all()
    record_checkpoints(session, flipped)
    return len(flipped)


def note_change(session: Session, checkpoint: Checkpoint) -> None:
    """What every change of a kept checkpoint brings: the next version, and a record of it in the bucket."""
    checkpoint.version += 1
    record_checkpoint(session, checkpoint.id)
