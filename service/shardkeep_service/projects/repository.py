"""SQL of projects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Run


@dataclass(frozen=True, slots=True)
class ProjectCounts:
    """What a project holds."""

    runs: int = 0
    committed_checkpoints: int = 0
    stored_bytes: int = 0


def project_named(session: Session, name: str) -> Project | None:
    """The project with this name; a deleted one has none."""
    return session.scalars(select(Project).where(Project.name == name, Project.deleted_at.is_(None))).one_or_none()


def projects_after(
    session: Session, name: str | None, *, only_ids: Collection[str] | None, deleted: bool = False, limit: int
) -> Sequence[Project]:
    """Projects by the name in their row, after `name`: those that are there, or those that are deleted; only those of
    `only_ids` where they are given.
    """
    there = Project.deleted_at.is_not(None) if deleted else Project.deleted_at.is_(None)
    query = select(Project).where(there).order_by(Project.name).limit(limit)
    if name is not None:
        query = query.where(Project.name > name)
    if only_ids is not None:
        query = query.where(Project.id.in_(only_ids))
    return session.scalars(query).all()


def counts_of(session: Session, project_ids: Sequence[str]) -> dict[str, ProjectCounts]:
    """Counts of several projects in three queries, whatever their number."""
    there = (Run.project_id.in_(project_ids), Run.deleted_at.is_(None))
    runs = select(Run.project_id, func.count()).where(*there).group_by(Run.project_id)
    committed = (
        select(Checkpoint.project_id, func.count())
        .where(Checkpoint.project_id.in_(project_ids), Checkpoint.state == CheckpointState.COMMITTED.value)
        .group_by(Checkpoint.project_id)
    )
    stored = (
        select(Chunk.project_id, func.sum(Chunk.size_bytes))
        .where(Chunk.project_id.in_(project_ids), Chunk.state == ChunkState.STORED.value)
        .group_by(Chunk.project_id)
    )
    run_counts, committed_counts, byte_counts = (_counted(session, query) for query in (runs, committed, stored))
    return {
        project_id: ProjectCounts(
            run_counts.get(project_id, 0), committed_counts.get(project_id, 0), byte_counts.get(project_id, 0)
        )
        for project_id in project_ids
    }


def _counted(session: Session, query: Select[str, int]) -> dict[str, int]:
    return {project_id: int(count) for project_id, count in session.execute(query)}
