"""Carrying a policy out on a run: planned anew under the run's lock, then the ordinary delete of each checkpoint.

Beginning an attempt, deciding, opening, committing, pinning and tagging lock the run too, so what the plan saw is so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import RetentionRules
from shardkeep_service.access import audit
from shardkeep_service.access.principal import Principal
from shardkeep_service.catalogue.state import retention_paused
from shardkeep_service.checkpoints.deletion import delete_now
from shardkeep_service.checkpoints.repository import lock_checkpoints
from shardkeep_service.retention import repository
from shardkeep_service.retention.inputs import load_inputs
from shardkeep_service.retention.plan import Verdict, plan_retention
from shardkeep_service.runs.models import Run
from shardkeep_service.runs.repository import lock_run
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.worker.loop import Turn

log = structlog.get_logger("shardkeep.retention")

_RUNS_AT_A_TIME: Final = 100
_DELETED_AT_A_TIME: Final = 500
"""In one transaction: on SQLite everybody else waits for it."""


def apply_policies(context: ServiceContext, turn: Turn) -> int:
    """The worker's part: every policy on every run it is in force for. The number of checkpoints deleted."""
    with context.database.read() as session:
        paused = retention_paused(session)
    if paused is not None:
        log.info("retention_paused", reason=paused)
        return 0
    deleted, last = 0, ""
    while runs := _runs_after(context, last):
        for run_id in runs:
            turn.check()
            deleted += len(apply_to_run(context, run_id, audit.WORKER))
        last = runs[-1]
    return deleted


def apply_to_run(context: ServiceContext, run_id: str, actor: Principal | str) -> list[Verdict]:
    """Deletes what the policy in force does not keep; gives those verdicts. Nothing where there is no policy."""
    if not _has_work(context, run_id):
        return []
    gone: list[Verdict] = []
    while True:
        with context.database.write() as session:
            run = lock_run(session, run_id)
            deleted = _delete(session, run, actor, now=context.database.now(session))
        gone.extend(deleted)
        for verdict in deleted:
            log.info("checkpoint_deleted", checkpoint=verdict.candidate.id, reason=verdict.reasons[0].text)
        if len(deleted) < _DELETED_AT_A_TIME:
            context.metrics.retention_deleted.inc(len(gone))
            return gone


def plan_run(session: Session, run: Run, rules: RetentionRules, *, now: int) -> list[Verdict]:
    """A verdict on each committed checkpoint of the run."""
    inputs = load_inputs(session, run)
    return plan_retention(inputs.candidates, rules, inputs.needed, now=now)


def _runs_after(context: ServiceContext, run_id: str) -> Sequence[str]:
    with context.database.read() as session:
        runs = repository.runs_after(session, run_id, project_id=None, limit=_RUNS_AT_A_TIME)
        return [run.id for run in runs]


def _has_work(context: ServiceContext, run_id: str) -> bool:
    """A look without locks, so that runs with nothing to delete cost no write."""
    with context.database.read() as session:
        run = session.get_one(Run, run_id)
        return bool(_going(session, run, now=context.database.now(session)))


def _delete(session: Session, run: Run, actor: Principal | str, *, now: int) -> list[Verdict]:
    going = _going(session, run, now=now)[:_DELETED_AT_A_TIME]
    checkpoints = lock_checkpoints(session, [verdict.candidate.id for verdict in going])
    for verdict in going:
        checkpoint, reason = checkpoints[verdict.candidate.id], verdict.reasons[0]
        delete_now(session, checkpoint, now=now, reason=f"retention: {reason.text}")
        audit.record(
            session,
            actor,
            "checkpoint.delete",
            target=checkpoint.id,
            project_id=run.project_id,
            detail={"by": "retention", "reason": reason.code.value, "step": checkpoint.step},
        )
    return going


def _going(session: Session, run: Run, *, now: int) -> list[Verdict]:
    """What the policy in force deletes now; nothing of a deleted run, while retention is paused or without a policy."""
    policy = repository.policy_in_force(session, run)
    if policy is None or run.deleted_at is not None or retention_paused(session) is not None:
        return []
    rules = RetentionRules.model_validate(policy.rules)
    if rules.is_empty:
        return []
    return [verdict for verdict in plan_run(session, run, rules, now=now) if not verdict.kept]
