"""The lock between making chunks unusable and saying of a checkpoint that all its chunks are usable.

Both look at rows that the other writes, so neither can rely on what it read before the other is done. Locking tens of
thousands of chunk rows would do and cost too much: the project's row stands for them. Take it after the locks of runs
and checkpoints. SQLite, whose writers run one after the other, needs none of it.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep_service.projects.models import Project


def hold_chunk_states(session: Session, project_id: str) -> None:
    """No chunk of the project stops being usable until the transaction ends. Many may hold at once."""
    session.execute(select(Project.id).where(Project.id == project_id).with_for_update(read=True))


def lock_chunk_states(session: Session, project_id: str) -> None:
    """Waits for those who hold, and keeps others from it until the transaction ends: before quarantining chunks."""
    session.execute(select(Project.id).where(Project.id == project_id).with_for_update(key_share=True))
