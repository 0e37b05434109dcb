"""Whether the database itself has news of a subject that the bucket does not know yet."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep_service.checkpoints.models import OutboxEntry


def has_pending(session: Session, subject_id: str) -> bool:
    """Whether a change of the subject waits in the outbox: then what the database says is the newest."""
    query = select(OutboxEntry.id).where(OutboxEntry.subject_id == subject_id, OutboxEntry.done_at.is_(None))
    return session.scalars(query.limit(1)).first() is not None
