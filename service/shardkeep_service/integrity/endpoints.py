"""The routes of integrity."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends
from sqlalchemy import Text, cast, select

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import CheckpointId
from shardkeep.protocol.messages import FindingInfo, IntegrityInfo, Page
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.cursors import PageCursor, PageLimit, bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.integrity.coverage import load_coverage
from shardkeep_service.integrity.models import Finding
from shardkeep_service.moments import moment
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["integrity"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
_LIST: Final = "findings"


@router.get(routes.INTEGRITY)
def integrity(context: Context, principal: Reader) -> IntegrityInfo:
    """How much of what is stored was compared with its digest lately."""
    with context.database.read() as session:
        coverage = load_coverage(
            session, interval_seconds=context.settings.scrub_interval_seconds, project_ids=principal.project_ids
        )
    return IntegrityInfo(
        stored_bytes=coverage.stored_bytes,
        verified_bytes=coverage.verified_bytes,
        declared_bytes=coverage.declared_bytes,
        coverage=coverage.ratio,
        oldest_verified_at=moment(coverage.oldest_verified_at),
        open_findings=coverage.open_findings,
    )


@router.get(routes.FINDINGS)
def findings(
    context: Context,
    principal: Reader,
    resolved: bool = False,
    checkpoint: CheckpointId | None = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[FindingInfo]:
    """What was found damaged or lost, newest first: what still is, or with `resolved` what was; of one `checkpoint`."""
    principal.check_sees_whole_projects()
    size = bounded_limit(limit)
    filters = {"resolved": resolved, "checkpoint": checkpoint}
    position = decode_cursor(cursor, _LIST, filters, (int,))
    query = select(Finding).where(Finding.resolved_at.is_not(None) if resolved else Finding.resolved_at.is_(None))
    if principal.project_ids is not None:
        query = query.where(Finding.project_id.in_(principal.project_ids))
    if checkpoint is not None:
        # An id is of fixed length and form, so it is in the JSON text only where it is in the list.
        query = query.where(cast(Finding.harmed, Text).contains(checkpoint, autoescape=True))
    if position is not None:
        query = query.where(Finding.id < position[0])
    with context.database.read() as session:
        rows = session.scalars(query.order_by(Finding.id.desc()).limit(size + 1)).all()
    following = encode_cursor(_LIST, filters, (rows[size - 1].id,)) if len(rows) > size else None
    return Page[FindingInfo](items=[_info(row) for row in rows[:size]], next_cursor=following)


def _info(row: Finding) -> FindingInfo:
    return FindingInfo.model_validate(
        {
            "id": row.id,
            "project_id": row.project_id,
            "checkpoint_id": row.checkpoint_id,
            "kind": row.kind,
            "damage": row.damage,
            "object_key": row.object_key,
            "digest": row.digest,
            "detail": row.detail,
            "harmed": row.harmed,
            "found_at": moment(row.found_at),
            "resolved_at": moment(row.resolved_at),
            "resolution": row.resolution,
        }
    )
