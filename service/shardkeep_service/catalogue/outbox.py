"""The outbox: what a transaction changed that the bucket must know, noted in that transaction itself.

The worker writes the records afterwards (`commit_records.py`). An entry names a subject, not a content: what is written
is the subject's state when it is written, under its version, so entries may be repeated, coalesced and reordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from shardkeep_service.checkpoints.models import OutboxEntry
from shardkeep_service.database.session_time import session_now
from shardkeep_service.moments import MICROS_PER_SECOND


class RecordKind(StrEnum):
    """What a record is of. Values are stored; `commit_record` is that of the first schema."""

    CHECKPOINT = "commit_record"
    OPEN = "open_record"
    ATTEMPT = "attempt_record"
    RUN = "run_record"
    PROJECT = "project_record"


def record_checkpoint(session: Session, checkpoint_id: str) -> None:
    """Call where a checkpoint is committed and where its pin, tags or deletion change; its `version` must grow too."""
    _add(session, RecordKind.CHECKPOINT, checkpoint_id)


def record_checkpoints(session: Session, checkpoint_ids: Sequence[str]) -> None:
    """The same for many."""
    if checkpoint_ids:
        entry = {"kind": RecordKind.CHECKPOINT.value, "created_at": session_now(session)}
        session.execute(insert(OutboxEntry), [{**entry, "subject_id": one} for one in checkpoint_ids])


def record_open(session: Session, checkpoint_id: str) -> None:
    """Call where a checkpoint is made."""
    _add(session, RecordKind.OPEN, checkpoint_id)


def record_attempt(session: Session, attempt_id: str) -> None:
    """Call where an attempt begins and where it decides."""
    _add(session, RecordKind.ATTEMPT, attempt_id)


def record_run(session: Session, run_id: str) -> None:
    """Call where a run is made, renamed, deleted or restored."""
    _add(session, RecordKind.RUN, run_id)


def record_project(session: Session, project_id: str) -> None:
    """Call where a project is made, renamed, deleted or restored."""
    _add(session, RecordKind.PROJECT, project_id)


def outbox_lag_seconds(session: Session) -> float:
    """The age of the oldest change that the bucket does not know yet; 0 when it knows all."""
    oldest = session.scalars(select(func.min(OutboxEntry.created_at)).where(OutboxEntry.done_at.is_(None))).one()
    return 0.0 if oldest is None else max(0, session_now(session) - oldest) / MICROS_PER_SECOND


def _add(session: Session, kind: RecordKind, subject_id: str) -> None:
    session.add(OutboxEntry(kind=kind.value, subject_id=subject_id, created_at=session_now(session)))
