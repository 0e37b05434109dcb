"""SQL of projects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shardkeep_service.access.models import ProjectUsage
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Run


@dataclass(frozen=True, slots=True)
class ProjectCounts:
    """What a project holds."""

    runs: int = 0
    committed_checkpoints: int = 0
    stored_bytes: int = 0
    """What its chunks take in the store, until collection removes them."""


def project_named(session: Session, name: str) -> Project | None:
    """The project with this name; a deleted one has none."""
    return session.scalars(select(Project).where(Project.name == name, Project.deleted_at.is_(None))).one_or_none()


def projects_after(
    session: Session,
    name: str | None,
    *,
    only_ids: Collection[str] | None,
    deleted: bool = False,
    search: str = "",
    limit: int,
) -> Sequence[Project]:
    """Projects by the name in their row, after `name`: those that are there, or those that are deleted; only those of
    `only_ids` where they are given, and whose shown name contains `search`, in whatever case.
    """
    there = Project.deleted_at.is_not(None) if deleted else Project.deleted_at.is_(None)
    query = select(Project).where(there).order_by(Project.name).limit(limit)
    if name is not None:
        query = query.where(Project.name > name)
    if only_ids is not None:
        query = query.where(Project.id.in_(only_ids))
    if search:
        shown = func.lower(func.coalesce(Project.deleted_name, Project.name))
        query = query.where(shown.contains(search.lower(), autoescape=True))
    return session.scalars(query).all()


def counts_of(session: Session, project_ids: Sequence[str]) -> dict[str, ProjectCounts]:
    """Counts of several projects in two queries, whatever their number: neither checkpoints nor chunks are read."""
    runs = (
        select(Run.project_id, func.count().filter(Run.deleted_at.is_(None)), func.sum(Run.committed_checkpoints))
        .where(Run.project_id.in_(project_ids))
        .group_by(Run.project_id)
    )
    stored = (
        select(ProjectUsage.project_id, func.sum(ProjectUsage.stored_bytes))
        .where(ProjectUsage.project_id.in_(project_ids))
        .group_by(ProjectUsage.project_id)
    )
    bytes_of = {project_id: int(stored_bytes) for project_id, stored_bytes in session.execute(stored)}
    counts = {project_id: ProjectCounts(stored_bytes=bytes_of.get(project_id, 0)) for project_id in project_ids}
    for project_id, there, committed in session.execute(runs):
        counts[project_id] = replace(counts[project_id], runs=there, committed_checkpoints=int(committed))
    return counts
