"""Beginning attempts: the fence of a run moves here, and only forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import new_id
from shardkeep.protocol.messages import AttemptInfo, BeginAttempt, Page
from shardkeep_service.access.audit import record
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.catalogue.outbox import record_attempt
from shardkeep_service.checkpoints.aborting import abort_now, superseded
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.repository import lock_checkpoints
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import moment
from shardkeep_service.projects.models import Project
from shardkeep_service.runs import repository
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.repository import AttemptPlace, Origin
from shardkeep_service.runs.service import find_run
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "attempts"


def begin_attempt(
    context: ServiceContext, principal: Principal, project: str, run: str, body: BeginAttempt
) -> AttemptInfo:
    """The attempt of (launch_id, ordinal), begun now if it is new; from then on every older one is fenced.

    Open checkpoints of older attempts are aborted in the same transaction, so nothing waits for them and none commits.
    """
    with context.database.read() as session:
        owner, found = find_run(session, principal, project, run)
        attempt = _of_launch(session, found, body)
        if attempt is not None:
            return attempt_infos(session, owner, found, [attempt])[0]
    with context.database.write() as session:
        locked = repository.lock_run(session, found.id)
        if locked.deleted_at is not None:  # since it was found
            raise Refusal(ErrorCode.UNKNOWN_RUN, UNSEEN[ErrorCode.UNKNOWN_RUN])
        attempt = _of_launch(session, locked, body)
        aborted: list[str] = []
        if attempt is None:
            attempt, aborted = _begin(session, locked, body, now=context.database.now(session))
            _record(session, principal, locked, attempt)
        info = attempt_infos(session, owner, locked, [attempt])[0]
    for checkpoint_id in aborted:
        context.board.notify(checkpoint_id)
        context.metrics.checkpoints.labels(ErrorCode.SUPERSEDED.value).inc()
    return info


def get_attempt(context: ServiceContext, principal: Principal, attempt_id: str) -> AttemptInfo:
    """One attempt."""
    with context.database.read() as session:
        place = find_attempt(session, principal, attempt_id)
        return attempt_infos(session, place.project, place.run, [place.attempt])[0]


def list_attempts(
    context: ServiceContext, principal: Principal, project: str, run: str, *, limit: int, cursor: str | None
) -> Page[AttemptInfo]:
    """The attempts of a run, newest first."""
    size = bounded_limit(limit)
    filters = {"project": project, "run": run}
    position = decode_cursor(cursor, _LIST, filters, (int,))
    with context.database.read() as session:
        owner, found = find_run(session, principal, project, run)
        rows = repository.attempts_before(session, found.id, position[0] if position else None, limit=size + 1)
        items = attempt_infos(session, owner, found, rows[:size])
    following = encode_cursor(_LIST, filters, (items[-1].number,)) if len(rows) > size else None
    return Page[AttemptInfo](items=items, next_cursor=following)


def find_attempt(session: Session, principal: Principal, attempt_id: str) -> AttemptPlace:
    """The attempt with its run and project; Refusal `unknown_attempt`."""
    place = repository.attempt_place(session, attempt_id)
    if place is None:
        raise Refusal(ErrorCode.UNKNOWN_ATTEMPT, UNSEEN[ErrorCode.UNKNOWN_ATTEMPT])
    principal.check_run(place.project.id, place.run.id, code=ErrorCode.UNKNOWN_ATTEMPT)
    return place


def check_current(run: Run, attempt: Attempt) -> None:
    """Refusal `attempt_fenced` unless the attempt is the run's current one, `run_deleted` if the run is gone."""
    if run.deleted_at is not None:
        raise run_deleted(run)
    if run.current_attempt_id != attempt.id:
        raise fenced(run, attempt)


def run_deleted(run: Run) -> Refusal:
    """What a job of a deleted run is told."""
    return Refusal(
        ErrorCode.RUN_DELETED,
        f"run {run.shown_name!r} ({run.id}) was deleted; stop this job, or restore the run if it should go on",
    )


def fenced(run: Run, attempt: Attempt) -> Refusal:
    """What an attempt is told once a newer one has begun."""
    return Refusal(
        ErrorCode.ATTEMPT_FENCED,
        f"attempt {attempt.number} ({attempt.id}) may not write any more: attempt {run.current_attempt_id} of run"
        f" {run.name!r} began after it; stop this job, or resume again if it is the one that should go on",
    )


def attempt_infos(session: Session, project: Project, run: Run, attempts: Sequence[Attempt]) -> list[AttemptInfo]:
    """Attempts of a run as the protocol shows them, with what they resumed from: one query, whatever their number."""
    origins = repository.origins_of(session, attempts)
    return [_attempt_info(project, run, attempt, origins.get(attempt.id)) for attempt in attempts]


def _attempt_info(project: Project, run: Run, attempt: Attempt, origin: Origin | None) -> AttemptInfo:
    return AttemptInfo(
        id=attempt.id,
        run_id=run.id,
        project=project.name,
        run=run.name,
        number=attempt.number,
        launch_id=attempt.launch_id,
        ordinal=attempt.ordinal,
        world_size=attempt.world_size,
        labels=attempt.labels,
        created_at=moment(attempt.created_at),
        current=run.current_attempt_id == attempt.id,
        decision=attempt.decision,
        resumed_step=None if origin is None else origin.step,
        resumed_attempt=None if origin is None else origin.attempt,
    )


def _of_launch(session: Session, run: Run, body: BeginAttempt) -> Attempt | None:
    attempt = repository.attempt_of_launch(session, run.id, body.launch_id, body.ordinal)
    if attempt is not None and attempt.world_size != body.world_size:
        raise Refusal(
            ErrorCode.WORLD_SIZE_DISAGREES,
            f"attempt {attempt.id} of this launch began with world size {attempt.world_size}, this rank says"
            f" {body.world_size}; all ranks of a launch must agree, and another launch needs its own launch_id",
        )
    return attempt


def _begin(session: Session, run: Run, body: BeginAttempt, *, now: int) -> tuple[Attempt, list[str]]:
    """The new attempt and the checkpoints aborted for it. A late lower ordinal of a launch moves no fence."""
    highest = repository.highest_ordinal(session, run.id, body.launch_id)
    run.attempts += 1
    attempt = Attempt(
        id=new_id("att"),
        run_id=run.id,
        number=run.attempts,
        launch_id=body.launch_id,
        ordinal=body.ordinal,
        world_size=body.world_size,
        labels=body.labels,
        created_at=now,
        passed_over=[],
    )
    session.add(attempt)
    record_attempt(session, attempt.id)
    if highest is not None and highest > body.ordinal:
        return attempt, []
    run.current_attempt_id = attempt.id
    return attempt, _abort_older(session, run, attempt)


def _record(session: Session, principal: Principal, run: Run, attempt: Attempt) -> None:
    detail = {"run": run.name, "number": attempt.number, "world_size": attempt.world_size}
    record(session, principal, "attempt.begin", target=attempt.id, project_id=run.project_id, detail=detail)


def _abort_older(session: Session, run: Run, attempt: Attempt) -> list[str]:
    unfinished = select(Checkpoint.id).where(Checkpoint.run_id == run.id, Checkpoint.state.in_(UNFINISHED))
    locked = lock_checkpoints(session, session.scalars(unfinished).all()).values()
    older = [checkpoint for checkpoint in locked if checkpoint.state in UNFINISHED]
    for checkpoint in older:
        abort_now(session, checkpoint, superseded(attempt.number, attempt.id))
    return [checkpoint.id for checkpoint in older]
