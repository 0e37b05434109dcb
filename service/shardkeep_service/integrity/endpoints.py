"""The routes of integrity."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends
from sqlalchemy import select

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import CheckpointId
from shardkeep.protocol.messages import FindingInfo, IntegrityInfo, Page
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.cursors import PageCursor, PageLimit, bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.integrity.coverage import load_coverage
from shardkeep_service.integrity.models import Finding, FindingCheckpoint
from shardkeep_service.moments import moment
from shardkeep_service.projects.service import find_project
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["integrity"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
_LIST: Final = "findings"


@router.get(routes.INTEGRITY)
def integrity(context: Context, principal: Reader, project: str | None = None) -> IntegrityInfo:
    """How much of what is stored was compared with its digest lately: of what the token may see, or of one project."""
    with context.database.read() as session:
        project_ids = principal.project_ids
        if project is not None:
            project_ids = frozenset([find_project(session, principal, project).id])
        coverage = load_coverage(
            session, interval_seconds=context.settings.scrub_interval_seconds, project_ids=project_ids
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
    """What was found damaged or lost, newest first: what still is, or with `resolved` what was.

    With `checkpoint`: its own objects, and the chunks that it needed when they were found.
    """
    principal.check_sees_whole_projects()
    size = bounded_limit(limit)
    filters = {"resolved": resolved, "checkpoint": checkpoint}
    position = decode_cursor(cursor, _LIST, filters, (int,))
    query = select(Finding).where(Finding.resolved_at.is_not(None) if resolved else Finding.resolved_at.is_(None))
    if principal.project_ids is not None:
        query = query.where(Finding.project_id.in_(principal.project_ids))
    key = Finding.id
    if checkpoint is not None:
        key = FindingCheckpoint.finding_id
        query = query.join(FindingCheckpoint, key == Finding.id).where(FindingCheckpoint.checkpoint_id == checkpoint)
    if position is not None:
        query = query.where(key < position[0])
    with context.database.read() as session:
        rows = session.scalars(query.order_by(key.desc()).limit(size + 1)).all()
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
