"""Reading the audit log: a page at a time, newest first, or all of it as JSON lines, oldest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import AuditEntryInfo, Page
from shardkeep_service.access.models import AuditEntry
from shardkeep_service.access.principal import Principal
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.moments import micros, moment
from shardkeep_service.projects.models import Project
from shardkeep_service.projects.service import find_project
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "audit"
_EXPORT_PAGE: Final = 1_000
_LARGEST_MICROS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What is asked for; None is anything. `action` may be a whole noun: `token` or `token.create`."""

    actor: str | None = None
    action: str | None = None
    project: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def list_entries(
    context: ServiceContext, principal: Principal, wanted: AuditFilter, *, limit: int, cursor: str | None
) -> Page[AuditEntryInfo]:
    """Entries, newest first. A token bound to projects sees those of its projects."""
    size = bounded_limit(limit)
    filters = asdict(wanted)
    position = decode_cursor(cursor, _LIST, filters, (int,))
    with context.database.read() as session:
        query = _narrowed(session, principal, wanted).order_by(AuditEntry.id.desc()).limit(size + 1)
        if position is not None:
            query = query.where(AuditEntry.id < position[0])
        rows = session.scalars(query).all()
        items = _infos(session, rows[:size])
    following = encode_cursor(_LIST, filters, (items[-1].id,)) if len(rows) > size else None
    return Page[AuditEntryInfo](items=items, next_cursor=following)


def export_entries(context: ServiceContext, principal: Principal, wanted: AuditFilter) -> Iterator[bytes]:
    """Every entry as one line of JSON, oldest first. No transaction is held while the client reads.

    Refusals come with the first piece: take it before answering.
    """
    last_id = 0
    while True:
        with context.database.read() as session:
            query = _narrowed(session, principal, wanted).where(AuditEntry.id > last_id).order_by(AuditEntry.id)
            rows = session.scalars(query.limit(_EXPORT_PAGE)).all()
            lines = b"".join(info.model_dump_json().encode() + b"\n" for info in _infos(session, rows))
        yield lines
        if len(rows) < _EXPORT_PAGE:
            return
        last_id = rows[-1].id


def _narrowed(session: Session, principal: Principal, wanted: AuditFilter) -> Select[AuditEntry]:
    query = select(AuditEntry)
    if principal.project_ids is not None:
        query = query.where(AuditEntry.project_id.in_(sorted(principal.project_ids)))
    if wanted.project is not None:
        query = query.where(AuditEntry.project_id == find_project(session, principal, wanted.project).id)
    if wanted.actor is not None:
        query = query.where(AuditEntry.actor == wanted.actor)
    if wanted.target is not None:
        query = query.where(AuditEntry.target == wanted.target)
    if wanted.action is not None:
        one = AuditEntry.action == wanted.action
        query = query.where(
            one if "." in wanted.action else AuditEntry.action.startswith(f"{wanted.action}.", autoescape=True)
        )
    if wanted.since is not None:
        query = query.where(AuditEntry.at >= _micros(wanted.since))
    if wanted.until is not None:
        query = query.where(AuditEntry.at < _micros(wanted.until))
    return query


def _micros(at: datetime) -> int:
    """Database time; a datetime without a zone is UTC."""
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(-_LARGEST_MICROS, min(_LARGEST_MICROS, micros((aware - moment(0)).total_seconds())))


def _infos(session: Session, rows: Sequence[AuditEntry]) -> list[AuditEntryInfo]:
    ids = {row.project_id for row in rows if row.project_id is not None}
    names = dict(session.execute(select(Project.id, Project.name).where(Project.id.in_(ids))).all()) if ids else {}
    return [_info(row, names) for row in rows]


def _info(row: AuditEntry, names: Mapping[str, str]) -> AuditEntryInfo:
    detail: dict[str, Any] | None = row.detail
    return AuditEntryInfo(
        id=row.id,
        at=moment(row.at),
        actor=row.actor,
        actor_name=row.actor_name,
        action=row.action,
        target=row.target,
        project=names.get(row.project_id, row.project_id) if row.project_id else None,
        request_id=row.request_id,
        detail=detail,
    )
