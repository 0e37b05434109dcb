"""SQL of retention policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, exists, or_, select
from sqlalchemy.orm import Session

from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.retention.models import RetentionPolicy
from shardkeep_service.runs.models import Run


def policy_of(session: Session, subject_id: str) -> RetentionPolicy | None:
    """The policy set for a project or a run itself."""
    return session.get(RetentionPolicy, subject_id, populate_existing=True)


def policy_in_force(session: Session, run: Run) -> RetentionPolicy | None:
    """The run's own, which stands instead of its project's, else that one."""
    return policy_of(session, run.id) or policy_of(session, run.project_id)


def put_policy(session: Session, values: dict[str, Any]) -> None:
    """Sets a policy in place of what was set there."""
    if insert_if_absent(session, RetentionPolicy, values):
        return
    policy = session.get_one(RetentionPolicy, values["subject_id"], with_for_update=True, populate_existing=True)
    policy.rules, policy.set_at, policy.set_by = values["rules"], values["set_at"], values["set_by"]


def remove_policy(session: Session, subject_id: str) -> bool:
    """Whether there was one."""
    removed = delete(RetentionPolicy).where(RetentionPolicy.subject_id == subject_id)
    return session.scalars(removed.returning(RetentionPolicy.subject_id)).first() is not None


def runs_after(session: Session, run_id: str, *, project_id: str | None, limit: int) -> Sequence[Run]:
    """Runs that are not deleted, by id: of one project, or all that a policy is in force for."""
    query = select(Run).where(Run.id > run_id, Run.deleted_at.is_(None)).order_by(Run.id).limit(limit)
    if project_id is not None:
        return session.scalars(query.where(Run.project_id == project_id)).all()
    has_policy = exists().where(or_(RetentionPolicy.subject_id == Run.id, RetentionPolicy.subject_id == Run.project_id))
    return session.scalars(query.where(has_policy)).all()
