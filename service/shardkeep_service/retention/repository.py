"""SQL of retention policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import exists, or_, select
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


def locked_policy_of(session: Session, subject_id: str) -> RetentionPolicy | None:
    """The policy set for a project or a run itself, which nobody else changes before this transaction ends."""
    return session.get(RetentionPolicy, subject_id, with_for_update=True, populate_existing=True)


def add_or_lock_policy(session: Session, values: dict[str, Any]) -> RetentionPolicy | None:
    """Sets a policy where there is none, and gives None; else gives the one that is there, as `locked_policy_of`."""
    while not insert_if_absent(session, RetentionPolicy, values):
        found = locked_policy_of(session, values["subject_id"])
        if found is not None:  # else somebody has removed it in this very moment
            return found
    return None


def runs_after(session: Session, run_id: str, *, project_id: str | None, limit: int) -> Sequence[Run]:
    """Runs that are not deleted, by id: of one project, or all that a policy is in force for."""
    query = select(Run).where(Run.id > run_id, Run.deleted_at.is_(None)).order_by(Run.id).limit(limit)
    if project_id is not None:
        return session.scalars(query.where(Run.project_id == project_id)).all()
    has_policy = exists().where(or_(RetentionPolicy.subject_id == Run.id, RetentionPolicy.subject_id == Run.project_id))
    return session.scalars(query.where(has_policy)).all()
