"""Quotas: what a project may use at most, checked where bytes and checkpoints come in.

Where a limit is set, the transactions that add to the project lock its quota's row first, so that no two pass on the
last free byte; they are short and already share the work of many requests. Without a limit nothing is locked.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import QuotaInfo, SetQuota
from shardkeep_service.access.audit import record
from shardkeep_service.access.models import ProjectQuota
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.usage import add_usage, used_bytes, used_checkpoints
from shardkeep_service.errors import Refusal
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.service import find_project
from shardkeep_service.seen_versions import check_version
from shardkeep_service.service_context import ServiceContext

_NEVER_SET: Final = 0
"""The version of a quota that nobody has set."""


def check_bytes(session: Session, project_id: str, more_bytes: int) -> None:
    """Refusal `quota_exceeded` when so many more bytes do not fit now; reserves nothing, locks nothing."""
    quota = session.get(ProjectQuota, project_id)
    if quota is not None:
        _check_bytes(session, quota, more_bytes)


class Allowances:
    """What projects may still take within one transaction, and what it took.

    Made before any row of a chunk is touched: `lock` holds the quotas of these projects until the transaction ends, for
    one that makes rows. `settle` comes last.
    """

    def __init__(self, session: Session, project_ids: Collection[str], *, lock: bool = True) -> None:
        self._session = session
        self._used: dict[str, int] = {}
        self._added: dict[str, int] = {}
        query = select(ProjectQuota).where(ProjectQuota.project_id.in_(sorted(project_ids)))
        query = query.order_by(ProjectQuota.project_id).execution_options(populate_existing=True)
        rows = session.scalars(query.with_for_update() if lock else query).all()
        self._limits = {row.project_id: row.max_bytes for row in rows if row.max_bytes is not None}

    def is_limited(self, project_id: str) -> bool:
        """Whether anything can be refused."""
        return project_id in self._limits

    def check(self, project_id: str, size_bytes: int) -> None:
        """Refusal `quota_exceeded` when so many more bytes do not fit."""
        limit = self._limits.get(project_id)
        if limit is None or not size_bytes:
            return
        if project_id not in self._used:
            self._used[project_id] = used_bytes(self._session, project_id)
        used = self._used[project_id] + self._added.get(project_id, 0)
        if used + size_bytes > limit:
            raise _bytes_exceeded(used, limit, size_bytes)

    def add(self, project_id: str, size_bytes: int) -> None:
        """Notes rows that were made; negative, where one became smaller."""
        self._added[project_id] = self._added.get(project_id, 0) + size_bytes

    def settle(self) -> None:
        """Counts what was noted."""
        for project_id, size_bytes in sorted(self._added.items()):
            add_usage(self._session, project_id, size_bytes)


def reserve_checkpoint(session: Session, project_id: str) -> None:
    """Refusal `quota_exceeded` when the project may have no further checkpoint, or has no byte left for one."""
    quota = _locked(session, project_id)
    if quota is None:
        return
    _check_bytes(session, quota, 1)
    if quota.max_checkpoints is not None:
        used = used_checkpoints(session, project_id)
        if used >= quota.max_checkpoints:
            raise _exceeded(
                f"has {used} checkpoints and may have {quota.max_checkpoints}",
                "delete some, or let retention do it",
                limit=quota.max_checkpoints,
                used=used,
            )


def overdrawn(session: Session, project_id: str) -> Refusal | None:
    """Why a save may not commit although its bytes came in: the limit was lowered meanwhile, say. None where it may."""
    quota = session.get(ProjectQuota, project_id)
    if quota is None:
        return None
    try:
        _check_bytes(session, quota, 0)
    except Refusal as refusal:
        return refusal
    return None


def get_quota(context: ServiceContext, principal: Principal, project: str) -> QuotaInfo:
    """What the project may use, and what it uses."""
    with context.database.read() as session:
        found = find_project(session, principal, project)
        return _info(session, found, session.get(ProjectQuota, found.id))


def set_quota(
    context: ServiceContext, principal: Principal, project: str, body: SetQuota, *, seen: int | None = None
) -> QuotaInfo:
    """Sets both limits; refuses `version_changed` for others than `seen`.

    What is stored already stays, however much it is. Idempotent: limits that hold already are set, whatever was seen.
    Not for a token bound to the project: a tenant does not lift its own limit.
    """
    with context.database.write() as session:
        found = find_project(session, principal, project)
        if principal.project_ids is not None:
            raise Refusal(
                ErrorCode.SCOPE_TOO_NARROW,
                f"quotas are set with an admin token of all projects; {principal.name!r} is bound to some",
            )
        return _write_quota(session, principal, found, body, seen=seen, now=context.database.now(session))


def _write_quota(
    session: Session, principal: Principal, project: Project, body: SetQuota, *, seen: int | None, now: int
) -> QuotaInfo:
    # A row to lock, also for the first of several at once.
    insert_if_absent(session, ProjectQuota, {"project_id": project.id, "set_at": _NEVER_SET})
    quota = session.get_one(ProjectQuota, project.id, with_for_update=True, populate_existing=True)
    before = (quota.max_bytes, quota.max_checkpoints)
    if before != (body.max_bytes, body.max_checkpoints):
        check_version(quota.set_at, seen, what=f"the quota of {project.name} is")
        quota.max_bytes, quota.max_checkpoints = body.max_bytes, body.max_checkpoints
        quota.set_at = max(now, quota.set_at + 1)
        detail = {**body.model_dump(), "before": {"max_bytes": before[0], "max_checkpoints": before[1]}}
        record(session, principal, "quota.set", target=project.name, project_id=project.id, detail=detail)
    session.flush()
    return _info(session, project, quota)


def _locked(session: Session, project_id: str) -> ProjectQuota | None:
    query = select(ProjectQuota).where(ProjectQuota.project_id == project_id).with_for_update()
    return session.scalars(query.execution_options(populate_existing=True)).one_or_none()


def _check_bytes(session: Session, quota: ProjectQuota, more_bytes: int) -> None:
    if quota.max_bytes is None:
        return
    used = used_bytes(session, quota.project_id)
    if used + more_bytes > quota.max_bytes:
        raise _bytes_exceeded(used, quota.max_bytes, more_bytes)


def _bytes_exceeded(used: int, limit: int, more_bytes: int) -> Refusal:
    return _exceeded(
        f"uses {used} bytes of {limit}, and {more_bytes} more do not fit",
        "delete checkpoints (their bytes count until collection removes them)",
        limit=limit,
        used=used,
    )


def _exceeded(what: str, next_step: str, *, limit: int, used: int) -> Refusal:
    return Refusal(
        ErrorCode.QUOTA_EXCEEDED,
        f"the project {what}: {next_step}, or ask an administrator for more",
        limit=limit,
        used=used,
    )


def _info(session: Session, project: Project, quota: ProjectQuota | None) -> QuotaInfo:
    return QuotaInfo(
        project=project.name,
        max_bytes=quota.max_bytes if quota else None,
        max_checkpoints=quota.max_checkpoints if quota else None,
        used_bytes=used_bytes(session, project.id),
        used_checkpoints=used_checkpoints(session, project.id),
        version=quota.set_at if quota else _NEVER_SET,
    )
