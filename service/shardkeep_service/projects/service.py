"""Creating, finding and listing projects."""

from __future__ import annotations

from typing import Final

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import is_name, new_id
from shardkeep.protocol.messages import Page, ProjectInfo
from shardkeep_service.access.audit import record
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.catalogue.outbox import record_project
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.moments import moment
from shardkeep_service.projects import repository
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.repository import ProjectCounts
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "projects"


def create_project(context: ServiceContext, principal: Principal, name: str) -> tuple[ProjectInfo, bool]:
    """The project, and whether it was made now. Idempotent."""
    with context.database.write() as session:
        project, created = ensure_project(session, principal, name, now=context.database.now(session))
        return _info(project, repository.counts_of(session, [project.id])[project.id]), created


def ensure_project(session: Session, principal: Principal, name: str, *, now: int) -> tuple[Project, bool]:
    """The project, made if absent; a token bound to another project gets `unknown_project`."""
    check_name(name, kind="project")
    created = False
    project = repository.project_named(session, name)
    if project is None:
        if principal.project_ids is not None:
            raise unknown_project()
        created = insert_if_absent(session, Project, {"id": new_id("prj"), "name": name, "created_at": now})
        project = repository.project_named(session, name)
        assert project is not None  # just inserted, by us or by another
        if created:
            detail = {"name": name}
            record(session, principal, "project.create", target=project.id, project_id=project.id, detail=detail)
            record_project(session, project.id)
    principal.check_project(project.id)
    return project, created


def get_project(context: ServiceContext, principal: Principal, name: str) -> ProjectInfo:
    """One project with its counts."""
    with context.database.read() as session:
        project = find_project(session, principal, name)
        return _info(project, repository.counts_of(session, [project.id])[project.id])


def list_projects(
    context: ServiceContext, principal: Principal, *, deleted: bool, search: str, limit: int, cursor: str | None
) -> Page[ProjectInfo]:
    """The projects the token may see, by name, or those deleted and not restored; an empty search finds all."""
    size = bounded_limit(limit)
    filters = {"deleted": deleted, "search": search}
    position = decode_cursor(cursor, _LIST, filters, (str,))
    with context.database.read() as session:
        rows = repository.projects_after(
            session,
            position[0] if position else None,
            only_ids=principal.project_ids,
            deleted=deleted,
            search=search,
            limit=size + 1,
        )
        page = rows[:size]
        counts = repository.counts_of(session, [project.id for project in page])
    following = encode_cursor(_LIST, filters, (page[-1].name,)) if len(rows) > size else None
    return Page[ProjectInfo](items=[_info(project, counts[project.id]) for project in page], next_cursor=following)


def project_info(session: Session, project: Project) -> ProjectInfo:
    """A project with its counts."""
    return _info(project, repository.counts_of(session, [project.id])[project.id])


def find_project(session: Session, principal: Principal, name: str) -> Project:
    """The project as far as the token may see it; Refusal `unknown_project`."""
    project = repository.project_named(session, name)
    if project is None:
        raise unknown_project()
    principal.check_project(project.id)
    return project


def unknown_project() -> Refusal:
    """The same words for absent and for hidden."""
    return Refusal(ErrorCode.UNKNOWN_PROJECT, UNSEEN[ErrorCode.UNKNOWN_PROJECT])


def check_name(name: str, *, kind: str) -> None:
    """Refusal `invalid_name` unless `name` may name a project or run."""
    if not is_name(name):
        raise Refusal(
            ErrorCode.INVALID_NAME,
            f"{name[:200]!r} cannot name a {kind}: use 1 to 128 of A-Z a-z 0-9 . _ - starting with a letter or digit"
            " and not ending in a dot",
        )


def _info(project: Project, counts: ProjectCounts) -> ProjectInfo:
    return ProjectInfo(
        id=project.id,
        name=project.shown_name,
        created_at=moment(project.created_at),
        deleted_at=moment(project.deleted_at),
        version=project.version,
        runs=counts.runs,
        committed_checkpoints=counts.committed_checkpoints,
        stored_bytes=counts.stored_bytes,
    )
