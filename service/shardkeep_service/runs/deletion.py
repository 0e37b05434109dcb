"""Deleting a run, restorably: its checkpoints go with it, its name is free at once, and its jobs are told to stop.

A deleted run keeps its row under a name that nobody can give. Restoring it brings back what was deleted with it and is
not purged yet, under its name while that is free, or under another.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AbortInfo, CheckpointState, RunInfo
from shardkeep_service.access import audit
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.catalogue.outbox import record_run
from shardkeep_service.checkpoints.aborting import abort_now
from shardkeep_service.checkpoints.deletion import delete_with_run, restore_with_run
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.errors import Refusal
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.service import check_name
from shardkeep_service.runs import repository
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Run
from shardkeep_service.runs.service import run_infos
from shardkeep_service.seen_versions import check_version
from shardkeep_service.service_context import ServiceContext

_NAMED: Final = 3


def get_run_by_id(context: ServiceContext, principal: Principal, run_id: str) -> RunInfo:
    """A run, deleted ones too; refuses `unknown_run`."""
    with context.database.read() as session:
        return _info(session, find_run_by_id(session, principal, run_id))


def delete_run(context: ServiceContext, principal: Principal, run_id: str, *, version: int, force: bool) -> RunInfo:
    """Deletes a run and its checkpoints. Repeating it changes nothing.

    Refuses `version_changed`, and unless forced `run_in_use` while its current attempt is saving and
    `checkpoint_pinned` while one of its checkpoints is pinned.
    """
    with context.database.read() as session:
        find_run_by_id(session, principal, run_id)
    with context.database.write() as session:
        run = repository.lock_run(session, run_id)
        aborted: list[str] = []
        if not (run.deleted_at is not None and run.version in (version, version + 1)):
            _check_version(run, version)
            if not force:
                check_unused(session, run)
            aborted = delete_run_now(session, run, principal, now=context.database.now(session), deleted_with=None)
            session.flush()
        info = _info(session, run)
    for checkpoint_id in aborted:
        context.board.notify(checkpoint_id)
    return info


def restore_run(
    context: ServiceContext, principal: Principal, run_id: str, *, version: int, name: str | None
) -> RunInfo:
    """Brings a deleted run back with what was deleted with it. Repeating it changes nothing.

    Refuses `version_changed`, `name_taken`, and `run_deleted` while its whole project is deleted.
    """
    if name is not None:
        check_name(name, kind="run")
    with context.database.read() as session:
        find_run_by_id(session, principal, run_id)
    try:
        with context.database.write() as session:
            run = repository.lock_run(session, run_id)
            if not (run.deleted_at is None and run.version in (version, version + 1)):
                _check_version(run, version)
                restore_run_now(session, run, principal, name=name)
                session.flush()
            return _info(session, run)
    except IntegrityError as exc:  # somebody made a run of that name in this very moment
        raise _name_taken(name or "its name") from exc


def find_run_by_id(session: Session, principal: Principal, run_id: str) -> Run:
    """The run in any state; Refusal `unknown_run` where it is absent or hidden from the token."""
    run = session.get(Run, run_id)
    if run is None:
        raise Refusal(ErrorCode.UNKNOWN_RUN, UNSEEN[ErrorCode.UNKNOWN_RUN])
    principal.check_project(run.project_id, code=ErrorCode.UNKNOWN_RUN)
    principal.check_run(run.project_id, run.id)
    return run


def check_unused(session: Session, run: Run) -> None:
    """Refuses `run_in_use` and `checkpoint_pinned`."""
    saving = session.scalars(
        select(Checkpoint).where(
            Checkpoint.run_id == run.id,
            Checkpoint.state.in_(UNFINISHED),
            Checkpoint.attempt_id == run.current_attempt_id,
        )
    ).first()
    if saving is not None:
        raise Refusal(
            ErrorCode.RUN_IN_USE,
            f"run {run.shown_name!r} is being saved to: step {saving.step} is {saving.state}; stop its job first, or"
            " force the deletion, which aborts that save",
            checkpoint_id=saving.id,
        )
    pinned = _pinned(session, run)
    if pinned:
        named = ", ".join(f"{checkpoint.id} (step {checkpoint.step})" for checkpoint in pinned[:_NAMED])
        raise Refusal(
            ErrorCode.CHECKPOINT_PINNED,
            f"{len(pinned)} checkpoints of run {run.shown_name!r} are pinned: {named}; unpin them first, or force the"
            " deletion",
        )


def delete_run_now(
    session: Session, run: Run, principal: Principal, *, now: int, deleted_with: str | None
) -> list[str]:
    """Deletes a locked run; gives the checkpoints that were aborted for it: notify their board keys."""
    unfinished = _locked_unfinished(session, run)
    for checkpoint in unfinished:
        reason = f"its run was deleted by {principal.name!r}"
        abort_now(session, checkpoint, AbortInfo(code=ErrorCode.RUN_DELETED, reason=reason), actor=principal)
    deleted = delete_with_run(session, run.id, now=now)
    run.deleted_at, run.deleted_with = now, deleted_with
    run.deleted_name, run.name = run.name, freed_name(run.id)
    run.version += 1
    detail = {"name": run.deleted_name, "checkpoints": deleted, "aborted": len(unfinished)}
    _note(session, run, principal, "run.delete", detail)
    return [checkpoint.id for checkpoint in unfinished]


def restore_run_now(
    session: Session, run: Run, principal: Principal, *, name: str | None, with_project: bool = False
) -> None:
    """Restores a locked run; `with_project`: its project is restored in the same transaction."""
    project = session.get_one(Project, run.project_id)
    if project.deleted_at is not None and not with_project:
        detail = f"the run was deleted with its project {project.shown_name!r}: restore the project {project.id}"
        raise Refusal(ErrorCode.RUN_DELETED, detail)
    wanted = name or run.shown_name
    other = repository.run_named(session, run.project_id, wanted)
    if other is not None and other.id != run.id:
        raise _name_taken(wanted)
    restored = restore_with_run(session, run.id)
    run.name, run.deleted_name = wanted, None
    run.deleted_at = run.deleted_with = None
    run.version += 1
    _note(session, run, principal, "run.restore", {"name": wanted, "checkpoints": restored})


def freed_name(subject_id: str) -> str:
    """What a deleted run or project is named, which nobody can name another: names begin with a letter or digit."""
    return f"~{subject_id}"


def _check_version(run: Run, version: int) -> None:
    state = "there" if run.deleted_at is None else "deleted"
    check_version(run.version, version, what=f"run {run.id} is {state}")


def _locked_unfinished(session: Session, run: Run) -> list[Checkpoint]:
    query = select(Checkpoint).where(Checkpoint.run_id == run.id, Checkpoint.state.in_(UNFINISHED)).with_for_update()
    return list(session.scalars(query.order_by(Checkpoint.id).execution_options(populate_existing=True)))


def _pinned(session: Session, run: Run) -> list[Checkpoint]:
    committed = Checkpoint.state == CheckpointState.COMMITTED.value
    query = select(Checkpoint).where(Checkpoint.run_id == run.id, committed, Checkpoint.pinned.is_(True))
    return list(session.scalars(query.order_by(func.coalesce(Checkpoint.sequence, 0))))


def _note(session: Session, run: Run, principal: Principal, action: str, detail: dict[str, object]) -> None:
    record_run(session, run.id)
    audit.record(session, principal, action, target=run.id, project_id=run.project_id, detail=detail)


def _info(session: Session, run: Run) -> RunInfo:
    return run_infos(session, session.get_one(Project, run.project_id), [run])[0]


def _name_taken(name: str) -> Refusal:
    detail = f"another run is named {name!r} now: restore this one under another name, or delete that one"
    return Refusal(ErrorCode.NAME_TAKEN, detail)
