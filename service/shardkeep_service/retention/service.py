"""Policies of projects and runs: showing, setting and clearing them, trying them out, applying them now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import (
    RetentionAnswer,
    RetentionPlanAnswer,
    RetentionPolicyInfo,
    RetentionReason,
    RetentionRules,
    RetentionVerdict,
)
from shardkeep_service.access import audit
from shardkeep_service.access.principal import Principal
from shardkeep_service.catalogue.state import retention_paused
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import moment
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.service import find_project
from shardkeep_service.retention import repository
from shardkeep_service.retention.applying import apply_to_run, plan_run
from shardkeep_service.retention.freed_bytes import freed_bytes
from shardkeep_service.retention.models import RetentionPolicy
from shardkeep_service.retention.plan import Verdict
from shardkeep_service.runs.models import Run
from shardkeep_service.runs.service import find_run
from shardkeep_service.seen_versions import check_version
from shardkeep_service.service_context import ServiceContext

LISTED_LIMIT: Final = 10_000
"""Verdicts in one answer: about two megabytes."""
_RUNS_AT_A_TIME: Final = 100


@dataclass(frozen=True, slots=True)
class Subject:
    """What a policy is of: a project, or one of its runs."""

    project: Project
    run: Run | None

    @property
    def id(self) -> str:
        """The id the policy is stored under."""
        return self.project.id if self.run is None else self.run.id


def find_subject(session: Session, principal: Principal, project: str, run: str | None) -> Subject:
    """The project or run; refuses `unknown_project` and `unknown_run`."""
    if run is None:
        principal.check_sees_whole_projects()
        return Subject(find_project(session, principal, project), None)
    return Subject(*find_run(session, principal, project, run))


def get_policy(context: ServiceContext, principal: Principal, project: str, run: str | None) -> RetentionAnswer:
    """The policy set here, and the one in force."""
    with context.database.read() as session:
        return _answer(session, find_subject(session, principal, project, run))


def set_policy(
    context: ServiceContext,
    principal: Principal,
    project: str,
    run: str | None,
    rules: RetentionRules,
    *,
    seen: int | None = None,
) -> RetentionAnswer:
    """Sets the policy in place of the one before.

    Refuses `empty_policy`, and `version_changed` when the one before is another than was `seen`. Idempotent: rules that
    are in place already are set, whatever was seen.
    """
    _check_not_empty(rules)
    new = rules.model_dump(mode="json", exclude_defaults=True)
    with context.database.write() as session:
        subject = find_subject(session, principal, project, run)
        _put(session, principal, subject, new, seen=seen, now=context.database.now(session))
        session.flush()
        return _answer(session, subject)


def clear_policy(
    context: ServiceContext, principal: Principal, project: str, run: str | None, *, seen: int | None = None
) -> RetentionAnswer:
    """Removes the policy set here; refuses `version_changed` for another than `seen`. Repeating it changes nothing."""
    with context.database.write() as session:
        subject = find_subject(session, principal, project, run)
        before = repository.locked_policy_of(session, subject.id)
        if before is not None:
            _check_version(subject, before, seen)
            _record(session, principal, "retention.clear", subject, {"before": before.rules})
            session.delete(before)
            session.flush()
        return _answer(session, subject)


def dry_run(
    context: ServiceContext, principal: Principal, project: str, run: str | None, rules: RetentionRules | None
) -> RetentionPlanAnswer:
    """What applying would do now: with the policies in force, or with `rules` as the policy of this project or run.

    Deletes nothing. Proposed rules of a project do not concern its runs that have a policy of their own.
    """
    if rules is not None:
        _check_not_empty(rules)
    with context.database.read() as session:
        subject = find_subject(session, principal, project, run)
        paused = retention_paused(session)
    planned = list(_plan(context, subject, rules))
    deleted = [verdict.candidate.id for _, verdict in planned if not verdict.kept]
    freed = freed_bytes(context.database, subject.project.id, deleted)
    return _plan_answer(planned, applied=False, freed=freed, paused=paused)


def apply_now(context: ServiceContext, principal: Principal, project: str, run: str | None) -> RetentionPlanAnswer:
    """Applies the policies in force now, as the worker does at its interval; gives what was deleted."""
    with context.database.read() as session:
        subject = find_subject(session, principal, project, run)
        paused = retention_paused(session)
    done: list[tuple[str, Verdict]] = []
    for found in _runs_of(context, subject):
        done.extend((found.name, verdict) for verdict in apply_to_run(context, found.id, principal))
    return _plan_answer(done, applied=True, freed=None, paused=paused)


def _plan(context: ServiceContext, subject: Subject, rules: RetentionRules | None) -> Iterator[tuple[str, Verdict]]:
    for run in _runs_of(context, subject):
        with context.database.read() as session:
            chosen = _rules_for(session, subject, run, rules)
            now = context.database.now(session)
            verdicts = [] if chosen is None else plan_run(session, run, chosen, now=now)
        for verdict in verdicts:
            yield run.name, verdict


def _rules_for(session: Session, subject: Subject, run: Run, proposed: RetentionRules | None) -> RetentionRules | None:
    own = repository.policy_of(session, run.id)
    if proposed is not None and (subject.run is not None or own is None):
        return proposed
    policy = own or repository.policy_of(session, run.project_id)
    return None if policy is None else RetentionRules.model_validate(policy.rules)


def _runs_of(context: ServiceContext, subject: Subject) -> Iterator[Run]:
    if subject.run is not None:
        yield subject.run
        return
    last = ""
    while True:
        with context.database.read() as session:
            page: Sequence[Run] = repository.runs_after(
                session, last, project_id=subject.project.id, limit=_RUNS_AT_A_TIME
            )
        yield from page
        if len(page) < _RUNS_AT_A_TIME:
            return
        last = page[-1].id


def _put(
    session: Session,
    principal: Principal,
    subject: Subject,
    rules: dict[str, object],
    *,
    seen: int | None,
    now: int,
) -> None:
    values = {
        "subject_id": subject.id,
        "project_id": subject.project.id,
        "run_id": None if subject.run is None else subject.run.id,
        "rules": rules,
        "set_at": now,
        "set_by": principal.name,
    }
    before = repository.add_or_lock_policy(session, values)
    old = None if before is None else before.rules
    if old == rules:
        return
    _check_version(subject, before, seen)
    if before is not None:
        before.rules, before.set_at, before.set_by = rules, max(now, before.set_at + 1), principal.name
    _record(session, principal, "retention.set", subject, {"rules": rules, "before": old})


def _check_version(subject: Subject, policy: RetentionPolicy | None, seen: int | None) -> None:
    name = subject.project.name if subject.run is None else f"{subject.project.name}/{subject.run.name}"
    what = f"{name} has {'no policy' if policy is None else f'a policy, set by {policy.set_by},'}"
    check_version(_version(policy), seen, what=what)


def _version(policy: RetentionPolicy | None) -> int:
    return 0 if policy is None else policy.set_at


def _record(session: Session, principal: Principal, action: str, subject: Subject, detail: dict[str, object]) -> None:
    audit.record(session, principal, action, target=subject.id, project_id=subject.project.id, detail=detail)


def _answer(session: Session, subject: Subject) -> RetentionAnswer:
    own = repository.policy_of(session, subject.id)
    in_force = own if subject.run is None else repository.policy_in_force(session, subject.run)
    return RetentionAnswer(
        policy=None if own is None else _info(subject, own),
        in_force=None if in_force is None else _info(subject, in_force),
        paused=retention_paused(session),
        version=_version(own),
    )


def _info(subject: Subject, policy: RetentionPolicy) -> RetentionPolicyInfo:
    return RetentionPolicyInfo(
        project=subject.project.name,
        run=subject.run.name if subject.run is not None and policy.run_id is not None else None,
        rules=RetentionRules.model_validate(policy.rules),
        set_at=moment(policy.set_at),
        set_by=policy.set_by,
    )


def _plan_answer(
    planned: Sequence[tuple[str, Verdict]], *, applied: bool, freed: int | None, paused: str | None
) -> RetentionPlanAnswer:
    ordered = sorted(planned, key=lambda item: (item[1].kept, item[0], item[1].candidate.sequence))
    deleted = sum(not verdict.kept for _, verdict in planned)
    return RetentionPlanAnswer(
        applied=applied,
        kept=len(planned) - deleted,
        deleted=deleted,
        freed_bytes=freed,
        verdicts=[_verdict(run, verdict) for run, verdict in ordered[:LISTED_LIMIT]],
        not_listed=max(0, len(ordered) - LISTED_LIMIT),
        paused=paused,
    )


def _verdict(run: str, verdict: Verdict) -> RetentionVerdict:
    candidate = verdict.candidate
    return RetentionVerdict(
        checkpoint_id=candidate.id,
        run=run,
        step=candidate.step,
        sequence=candidate.sequence,
        committed_at=moment(candidate.committed_at),
        on_line=candidate.on_line,
        kept=verdict.kept,
        reasons=[RetentionReason(code=reason.code.value, text=reason.text) for reason in verdict.reasons],
    )


def _check_not_empty(rules: RetentionRules) -> None:
    if rules.is_empty:
        raise Refusal(
            ErrorCode.EMPTY_POLICY,
            "the policy keeps nothing: give at least one of keep_last, every_steps, best, tags and"
            " younger_than_seconds; clear the policy if everything should be kept",
        )
