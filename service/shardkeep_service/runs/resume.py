"""Resuming: one recorded decision per attempt, the same answer for every rank."""

from __future__ import annotations

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, DecideResume, PassedOver, ResumeDecision
from shardkeep_service.access.audit import record
from shardkeep_service.access.principal import Principal
from shardkeep_service.catalogue.outbox import record_attempt
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.views import checkpoint_info
from shardkeep_service.errors import Refusal
from shardkeep_service.runs import repository
from shardkeep_service.runs.attempts import check_current, find_attempt
from shardkeep_service.runs.lines import EMPTY_LINE, heads_of, last_on_lines, load_lines
from shardkeep_service.runs.models import Attempt, Run
from shardkeep_service.runs.passed_over import passed_over
from shardkeep_service.service_context import ServiceContext

FRESH: Final = "fresh"
_LISTED: Final = 5


def decide_resume(context: ServiceContext, principal: Principal, attempt_id: str, body: DecideResume) -> ResumeDecision:
    """What the attempt resumes from. The first rank decides, under the lock of the run; the others get that answer.

    A fenced attempt that had decided still gets its answer; one that had not is refused.
    """
    if body.fresh and body.checkpoint_id is not None:
        raise Refusal(ErrorCode.MALFORMED_REQUEST, "give checkpoint_id or fresh=true, not both")
    with context.database.read() as session:
        place = find_attempt(session, principal, attempt_id)
        if place.attempt.decision is not None:
            return _recorded(session, place.attempt, body)
    with context.database.write() as session:
        run = repository.lock_run(session, place.run.id)
        attempt = session.scalars(select(Attempt).where(Attempt.id == attempt_id)).one()
        if attempt.decision is None:
            check_current(run, attempt)
            _decide(session, run, attempt, body, now=context.database.now(session))
            detail = {"run": run.name, "decision": attempt.decision}
            record(session, principal, "attempt.resume", target=attempt.id, project_id=run.project_id, detail=detail)
        session.flush()
        return _recorded(session, attempt, body)


def _decide(session: Session, run: Run, attempt: Attempt, body: DecideResume, *, now: int) -> None:
    """Writes the decision. The run is locked, so nothing else decides between reading and writing."""
    head = heads_of(session, [run.id]).get(run.id)
    line = load_lines(session, [head])[head] if head else EMPTY_LINE
    chosen: Checkpoint | None = None
    over: list[PassedOver] = []
    if not body.fresh:
        chosen = _asked_for(session, run, body.checkpoint_id) if body.checkpoint_id else _last(session, head)
        over = passed_over(session, run.id, line, chosen)
        if chosen is None and run.opened > 0:
            raise _no_usable(run, over)
    attempt.decision = FRESH if chosen is None else chosen.id
    attempt.decided_at = now
    attempt.passed_over = [passed.model_dump(mode="json") for passed in over]
    record_attempt(session, attempt.id)


def _last(session: Session, head: str | None) -> Checkpoint | None:
    return last_on_lines(session, [head]).get(head) if head else None


def _asked_for(session: Session, run: Run, checkpoint_id: str) -> Checkpoint:
    """The checkpoint asked for by id: of this run and committed; it may be off the line, which is a rollback."""
    checkpoint = session.get(Checkpoint, checkpoint_id)
    if checkpoint is None or checkpoint.run_id != run.id:
        raise Refusal(
            ErrorCode.UNKNOWN_CHECKPOINT,
            f"run {run.name!r} has no checkpoint {checkpoint_id}; list the run's checkpoints for the ids it has",
        )
    if checkpoint.state != CheckpointState.COMMITTED.value or checkpoint.quarantined:
        state = "quarantined" if checkpoint.quarantined else checkpoint.state
        raise Refusal(
            ErrorCode.CHECKPOINT_NOT_COMMITTED,
            f"checkpoint {checkpoint_id} of step {checkpoint.step} is {state}; only a committed one can be resumed"
            " from",
            checkpoint_id=checkpoint_id,
            state=checkpoint.state,
        )
    return checkpoint


def _no_usable(run: Run, over: list[PassedOver]) -> Refusal:
    listed = "; ".join(f"step {passed.step} ({passed.checkpoint_id}): {passed.reason}" for passed in over[:_LISTED])
    more = f"; and {len(over) - _LISTED} more" if len(over) > _LISTED else ""
    return Refusal(
        ErrorCode.NO_USABLE_CHECKPOINT,
        f"run {run.name!r} opened {run.opened} checkpoints and none on its line can be used: {listed}{more}. Resume"
        " from one of them by id, restore a deleted one, or say fresh=true to start over",
        passed_over=[passed.model_dump(mode="json") for passed in over],
    )


def _recorded(session: Session, attempt: Attempt, body: DecideResume) -> ResumeDecision:
    decision = attempt.decision
    assert decision is not None  # the callers have checked or just written it
    asked = FRESH if body.fresh else body.checkpoint_id
    if asked is not None and asked != decision:
        raise Refusal(
            ErrorCode.RESUME_DECIDED_OTHERWISE,
            f"attempt {attempt.id} has decided to resume from {decision}, this rank asks for {asked}; all ranks must"
            " ask for"
            " the same, and another choice needs another attempt",
            decision=decision,
        )
    return ResumeDecision(
        attempt_id=attempt.id,
        fresh=decision == FRESH,
        checkpoint=None if decision == FRESH else checkpoint_info(session, decision),
        passed_over=[PassedOver.model_validate(passed) for passed in attempt.passed_over],
    )
