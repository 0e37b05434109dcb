"""Deleting a project, restorably: its runs go with it, and its name is free at once."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import ProjectInfo
from shardkeep_service.access import audit
from shardkeep_service.access.principal import Principal
from shardkeep_service.catalogue.outbox import record_project
from shardkeep_service.errors import Refusal
from shardkeep_service.projects import repository
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.service import check_name, project_info, unknown_project
from shardkeep_service.runs.deletion import check_unused, delete_run_now, freed_name, restore_run_now
from shardkeep_service.runs.models import Run
from shardkeep_service.runs.repository import lock_runs
from shardkeep_service.seen_versions import check_version
from shardkeep_service.service_context import ServiceContext


def get_project_by_id(context: ServiceContext, principal: Principal, project_id: str) -> ProjectInfo:
    """A project, deleted ones too; refuses `unknown_project`."""
    with context.database.read() as session:
        return project_info(session, _find(session, principal, project_id))


def delete_project(
    context: ServiceContext, principal: Principal, project_id: str, *, version: int, force: bool
) -> ProjectInfo:
    """Deletes a project with its runs. Repeating it changes nothing; refuses what deleting each run would refuse."""
    with context.database.read() as session:
        _find(session, principal, project_id)
    with context.database.write() as session:
        now = context.database.now(session)
        aborted = _delete_runs(session, principal, project_id, now=now, force=force)
        project = _lock(session, project_id)  # last, as everybody locks; a refusal undoes the runs' deletion too
        if not (project.deleted_at is not None and project.version in (version, version + 1)):
            _check_version(project, version)
            aborted += _delete_runs(session, principal, project_id, now=now, force=force)  # made in this very moment
            project.deleted_at = now
            project.deleted_name, project.name = project.name, freed_name(project_id)
            _note(session, project, principal, "project.delete")
            session.flush()
        info = project_info(session, project)
    for checkpoint_id in aborted:
        context.board.notify(checkpoint_id)
    return info


def restore_project(
    context: ServiceContext, principal: Principal, project_id: str, *, version: int, name: str | None
) -> ProjectInfo:
    """Brings a deleted project back with the runs that were deleted with it. Repeating it changes nothing."""
    if name is not None:
        check_name(name, kind="project")
    with context.database.read() as session:
        _find(session, principal, project_id)
    try:
        with context.database.write() as session:
            for run in _runs(session, Run.deleted_with == project_id):
                restore_run_now(session, run, principal, name=None, with_project=True)
            project = _lock(session, project_id)
            if not (project.deleted_at is None and project.version in (version, version + 1)):
                _check_version(project, version)
                _restore(session, project, principal, name or project.shown_name)
            return project_info(session, project)
    except IntegrityError as exc:  # somebody made a project of that name in this very moment
        raise _name_taken(name or "its name") from exc


def _restore(session: Session, project: Project, principal: Principal, name: str) -> None:
    other = repository.project_named(session, name)
    if other is not None and other.id != project.id:
        raise _name_taken(name)
    project.name, project.deleted_name, project.deleted_at = name, None, None
    _note(session, project, principal, "project.restore")
    session.flush()


def _delete_runs(session: Session, principal: Principal, project_id: str, *, now: int, force: bool) -> list[str]:
    """Deletes the project's runs; gives the checkpoints that were aborted for it."""
    aborted: list[str] = []
    for run in _runs(session, Run.project_id == project_id, Run.deleted_at.is_(None)):
        if not force:
            check_unused(session, run)
        aborted += delete_run_now(session, run, principal, now=now, deleted_with=project_id)
    session.flush()
    return aborted


def _find(session: Session, principal: Principal, project_id: str) -> Project:
    project = session.get(Project, project_id)
    if project is None or not principal.sees(project_id):
        raise unknown_project()
    return project


def _lock(session: Session, project_id: str) -> Project:
    """The project, locked after its runs: whoever commits holds a run and then wants the project."""
    lock_runs(session, select(Run.id).where(Run.project_id == project_id))
    query = select(Project).where(Project.id == project_id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _runs(session: Session, *conditions: ColumnElement[bool]) -> Sequence[Run]:
    query = select(Run).where(*conditions).order_by(Run.id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).all()


def _check_version(project: Project, version: int) -> None:
    state = "there" if project.deleted_at is None else "deleted"
    check_version(project.version, version, what=f"project {project.id} is {state}")


def _note(session: Session, project: Project, principal: Principal, action: str) -> None:
    project.version += 1
    record_project(session, project.id)
    detail = {"name": project.shown_name}
    audit.record(session, principal, action, target=project.id, project_id=project.id, detail=detail)


def _name_taken(name: str) -> Refusal:
    detail = f"another project is named {name!r} now: restore this one under another name, or delete that one"
    return Refusal(ErrorCode.NAME_TAKEN, detail)
