"""SQL of runs and attempts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Attempt, Run


@dataclass(frozen=True, slots=True)
class AttemptPlace:
    """An attempt with the run and project it belongs to."""

    attempt: Attempt
    run: Run
    project: Project


@dataclass(frozen=True, slots=True)
class Origin:
    """What an attempt resumed from: the step of the checkpoint, and the number of the attempt that saved it."""

    step: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RunCounts:
    """How many checkpoints a run ever opened, and how many are committed, or unfinished, now."""

    checkpoints: int = 0
    committed: int = 0
    unfinished: int = 0


def run_named(session: Session, project_id: str, name: str) -> Run | None:
    """The run with this name in a project; a deleted one has none."""
    query = select(Run).where(Run.project_id == project_id, Run.name == name, Run.deleted_at.is_(None))
    return session.scalars(query).one_or_none()


def lock_run(session: Session, run_id: str) -> Run:
    """The run, locked until the transaction ends: beginning an attempt, deciding and committing exclude each other."""
    return lock_runs(session, [run_id])[run_id]


def lock_runs(session: Session, run_ids: Collection[str] | Select[str]) -> dict[str, Run]:
    """Several runs, locked in the order of their ids. The locks of checkpoints come after those of their runs."""
    query = (
        select(Run)
        .where(Run.id.in_(run_ids))
        .order_by(Run.id)
        .with_for_update(key_share=True)  # rows that refer to it may be inserted meanwhile
        .execution_options(populate_existing=True)
    )
    return {run.id: run for run in session.scalars(query)}


def runs_after(
    session: Session,
    project_id: str,
    name: str | None,
    *,
    only_id: str | None = None,
    deleted: bool = False,
    limit: int,
) -> Sequence[Run]:
    """Runs of a project by the name in their row, after `name`: those that are there, or those that are deleted; only
    the one with `only_id` where that is given.
    """
    there = Run.deleted_at.is_not(None) if deleted else Run.deleted_at.is_(None)
    query = select(Run).where(Run.project_id == project_id, there).order_by(Run.name).limit(limit)
    if name is not None:
        query = query.where(Run.name > name)
    if only_id is not None:
        query = query.where(Run.id == only_id)
    return session.scalars(query).all()


def counts_of(session: Session, run_ids: Sequence[str]) -> dict[str, RunCounts]:
    """Counts of several runs in one query."""
    committed = func.count().filter(Checkpoint.state == CheckpointState.COMMITTED.value)
    unfinished = func.count().filter(Checkpoint.state.in_(UNFINISHED))
    query = (
        select(Checkpoint.run_id, func.count(), committed, unfinished)
        .where(Checkpoint.run_id.in_(run_ids))
        .group_by(Checkpoint.run_id)
    )
    found = {run_id: RunCounts(*counts) for run_id, *counts in session.execute(query)}
    return {run_id: found.get(run_id, RunCounts()) for run_id in run_ids}


def attempt_of_launch(session: Session, run_id: str, launch_id: str, ordinal: int) -> Attempt | None:
    """The attempt that this launch and ordinal began."""
    query = select(Attempt).where(Attempt.run_id == run_id, Attempt.launch_id == launch_id, Attempt.ordinal == ordinal)
    return session.scalars(query).one_or_none()


def highest_ordinal(session: Session, run_id: str, launch_id: str) -> int | None:
    """The last ordinal that this launch began."""
    query = select(func.max(Attempt.ordinal)).where(Attempt.run_id == run_id, Attempt.launch_id == launch_id)
    return session.scalars(query).one()


def attempt_place(session: Session, attempt_id: str) -> AttemptPlace | None:
    """An attempt with its run and project."""
    query = (
        select(Attempt, Run, Project)
        .join(Run, Run.id == Attempt.run_id)
        .join(Project, Project.id == Run.project_id)
        .where(Attempt.id == attempt_id)
    )
    row = session.execute(query).one_or_none()
    return None if row is None else AttemptPlace(row[0], row[1], row[2])


def origins_of(session: Session, attempts: Sequence[Attempt]) -> dict[str, Origin]:
    """What each of the attempts resumed from, by its id, in one query; those that began fresh have none."""
    decided = {attempt.id: attempt.decision for attempt in attempts if attempt.decision is not None}
    if not decided:
        return {}
    query = (
        select(Checkpoint.id, Checkpoint.step, Attempt.number)
        .join(Attempt, Attempt.id == Checkpoint.attempt_id)
        .where(Checkpoint.id.in_(set(decided.values())))
    )
    found = {checkpoint_id: Origin(step, number) for checkpoint_id, step, number in session.execute(query)}
    return {attempt_id: found[decision] for attempt_id, decision in decided.items() if decision in found}


def attempts_before(session: Session, run_id: str, number: int | None, *, limit: int) -> Sequence[Attempt]:
    """Attempts of a run, newest first, before `number`."""
    query = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc()).limit(limit)
    if number is not None:
        query = query.where(Attempt.number < number)
    return session.scalars(query).all()
