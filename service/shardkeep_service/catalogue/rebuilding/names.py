"""Restoring projects, runs and attempts from their records.

What the database has under the same id stays, unless the record is of a later version. What it has under the same name
or number with another id is another thing: an old backup went on after it was restored, beside what it had lost. Then
the lost one comes back beside it: a name gets its id behind it, and numbers go below all others, so that what runs now
stays the newest.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shardkeep.protocol.identifiers import new_id, new_launch_id
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.rebuilding.listing import PROJECT
from shardkeep_service.catalogue.rebuilding.newest import Source
from shardkeep_service.catalogue.rebuilding.pending import has_pending
from shardkeep_service.catalogue.records import AttemptRecord, ProjectRecord, RunRecord
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Attempt, Run

_TAIL: Final = 8
"""Digits of an id that tell two of the same name apart."""
_NAME_LIMIT: Final = 128
UNKNOWN_RUN: Final = "recovered"


def restore_project(source: Source, project_id: str) -> None:
    """The project of this id, from its record."""
    record = source.newest(project_id, PROJECT, project_id, ProjectRecord)
    if record is None:
        return
    with source.context.database.write() as session:
        row = session.get(Project, project_id)
        if row is None:
            ensure_project(session, source, project_id, record.name, record.created_at)
            row = session.get_one(Project, project_id)
            row.version, row.deleted_at, row.deleted_name = record.version, record.deleted_at, record.deleted_name
        elif record.version > row.version and not has_pending(session, project_id):
            row.version, row.deleted_at, row.deleted_name = record.version, record.deleted_at, record.deleted_name
            row.name = _free_project_name(session, record.name, project_id)


def ensure_project(session: Session, source: Source, project_id: str, name: str, created_at: int) -> None:
    """Makes the project unless it is known; one whose name nobody knew so far is given this one."""
    known = session.get(Project, project_id)
    if known is not None:
        if known.name == _unnamed(project_id):
            known.name = _free_project_name(session, name, project_id)
        return
    session.add(Project(id=project_id, name=_free_project_name(session, name, project_id), created_at=created_at))
    session.flush()
    source.report.projects += 1


def restore_runs(source: Source, project_id: str) -> None:
    """Every run of the project that has a record."""
    for run_id in source.listing.subjects(project_id, keys.RUNS):
        record = source.newest(project_id, keys.RUNS, run_id, RunRecord)
        if record is None:
            continue
        with source.context.database.write() as session:
            ensure_project(session, source, project_id, _unnamed(project_id), record.created_at)
            _restore_run(session, source, record)


def _restore_run(session: Session, source: Source, record: RunRecord) -> None:
    row = session.get(Run, record.id)
    is_known = row is not None
    if row is None:
        ensure_run(session, source, record.project_id, record.id, record.name, record.created_at)
        row = session.get_one(Run, record.id)
    elif record.version <= row.version or has_pending(session, record.id):
        return
    row.version, row.deleted_at = record.version, record.deleted_at
    row.deleted_name, row.deleted_with = record.deleted_name, record.deleted_with
    if is_known:
        row.name = _free_run_name(session, record.project_id, record.name, record.id)


def ensure_run(session: Session, source: Source, project_id: str, run_id: str, name: str, created_at: int) -> None:
    """Makes the run unless it is known; one whose name nobody knew so far is given this one."""
    known = session.get(Run, run_id)
    if known is not None:
        if known.name == _unnamed(run_id):
            known.name = _free_run_name(session, project_id, name, run_id)
        return
    free = _free_run_name(session, project_id, name, run_id)
    session.add(
        Run(
            id=run_id, project_id=project_id, name=free, created_at=created_at, attempts=0, opened=0, sequence=0,
            version=1,
        )
    )  # fmt: skip
    session.flush()
    source.report.runs += 1


def restore_attempts(source: Source, project_id: str) -> None:
    """Every attempt of the project that has a record."""
    for attempt_id in source.listing.subjects(project_id, keys.ATTEMPTS):
        record = source.newest(project_id, keys.ATTEMPTS, attempt_id, AttemptRecord)
        if record is None:
            continue
        with source.context.database.write() as session:
            ensure_run(session, source, project_id, record.run_id, _unnamed(record.run_id), record.created_at)
            ensure_attempt(session, source, record, run_id=record.run_id)


def ensure_attempt(session: Session, source: Source, record: AttemptRecord, *, run_id: str) -> None:
    """Makes the attempt unless it is known; one known as undecided is given its decision."""
    if record.origin is not None:
        source.origins[record.origin.checkpoint_id] = record.origin
    row = session.get(Attempt, record.id)
    if row is None:
        number, launch_id = _free_attempt(session, run_id, record)
        row = Attempt(
            id=record.id, run_id=run_id, number=number, launch_id=launch_id, ordinal=record.ordinal,
            world_size=record.world_size, labels=record.labels, created_at=record.created_at, decision=None,
            decided_at=None, passed_over=[],
        )  # fmt: skip
        session.add(row)
        source.report.attempts += 1
    if row.decision is None and record.decision is not None:
        row.decision, row.decided_at = record.decision, record.decided_at or record.created_at
        row.passed_over = record.passed_over
    session.flush()


def ensure_unknown_attempt(session: Session, source: Source, run_id: str, world_size: int, attempt_id: str) -> None:
    """An attempt of which nothing is known but its id: older than all others, decided nothing."""
    now = source.context.database.now(session)
    ensure_attempt(
        session,
        source,
        AttemptRecord(attempt_id, number=0, launch_id=new_launch_id(), ordinal=0, world_size=world_size,
                      created_at=now, decision=None, labels={"recovered": "true"}),
        run_id=run_id,
    )  # fmt: skip


def lost_life_attempt(session: Session, source: Source, run_id: str, world_size: int) -> str:
    """A new attempt, older than all others, for a checkpoint whose place in its own is taken."""
    attempt_id = new_id("att")
    ensure_unknown_attempt(session, source, run_id, world_size, attempt_id)
    return attempt_id


def settle_current_attempt(session: Session, run: Run) -> None:
    """The fence: the last attempt that began and moved it. A late lower ordinal of a launch moves none."""
    highest: dict[str, int] = {}
    query = select(Attempt).where(Attempt.run_id == run.id, Attempt.number > 0).order_by(Attempt.number)
    for attempt in session.scalars(query):
        if attempt.ordinal > highest.get(attempt.launch_id, -1):
            highest[attempt.launch_id] = attempt.ordinal
            run.current_attempt_id = attempt.id
        run.attempts = max(run.attempts, attempt.number)


def _free_attempt(session: Session, run_id: str, record: AttemptRecord) -> tuple[int, str]:
    """Its number and launch, or, where another attempt has either, a number below all others and a launch anew."""
    taken = select(Attempt.id).where(
        Attempt.run_id == run_id,
        (Attempt.number == record.number)
        | ((Attempt.launch_id == record.launch_id) & (Attempt.ordinal == record.ordinal)),
    )
    if record.number > 0 and session.scalars(taken.limit(1)).first() is None:
        return record.number, record.launch_id
    lowest = session.scalars(select(func.min(Attempt.number)).where(Attempt.run_id == run_id)).one()
    return min(lowest or 0, 0) - 1, new_launch_id()


def _free_project_name(session: Session, name: str, project_id: str) -> str:
    query = select(Project.id).where(Project.name == name, Project.id != project_id)
    return name if session.scalars(query).first() is None else _told_apart(name, project_id)


def _free_run_name(session: Session, project_id: str, name: str, run_id: str) -> str:
    query = select(Run.id).where(Run.project_id == project_id, Run.name == name, Run.id != run_id)
    return name if session.scalars(query).first() is None else _told_apart(name, run_id)


def _told_apart(name: str, id_: str) -> str:
    tail = f"-{id_[-_TAIL:]}"
    return name[: _NAME_LIMIT - len(tail)] + tail


def _unnamed(id_: str) -> str:
    return _told_apart(UNKNOWN_RUN, id_)
