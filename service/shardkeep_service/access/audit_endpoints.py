"""The routes of the audit log. There is none that changes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query
from starlette.responses import StreamingResponse

from shardkeep.protocol import routes
from shardkeep.protocol.messages import AuditEntryInfo, Page
from shardkeep_service.access.audit_listing import AuditFilter, export_entries, list_entries
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["access"])

Context = Annotated[ServiceContext, Depends(get_context)]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]
Word = Annotated[str | None, Query(max_length=400)]
JSON_LINES: Final = "application/x-ndjson"
_SAVED_AS: Final = 'attachment; filename="shardkeep-audit.jsonl"'
"""A browser that follows a link to the export saves it, and never shows what others wrote as a page of ours."""


async def audit_filter(
    actor: Word = None,
    action: Annotated[str | None, Query(max_length=64, description="`token.create`, or a whole noun: `token`.")] = None,
    project: Word = None,
    target: Word = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> AuditFilter:
    """The filter in the query."""
    return AuditFilter(actor, action, project, target, since, until)


Wanted = Annotated[AuditFilter, Depends(audit_filter)]


@router.get(routes.AUDIT)
def list_audit(
    context: Context, principal: Admin, wanted: Wanted, limit: PageLimit = 50, cursor: PageCursor = None
) -> Page[AuditEntryInfo]:
    """Changes, newest first: who did what to what, when."""
    return list_entries(context, principal, wanted, limit=limit, cursor=cursor)


@router.get(
    routes.AUDIT_EXPORT,
    response_class=StreamingResponse,
    responses={200: {"content": {JSON_LINES: {}}, "description": "one entry a line"}},
)
def export_audit(context: Context, principal: Admin, wanted: Wanted) -> StreamingResponse:
    """Changes as JSON lines, oldest first, all of them."""
    pieces = export_entries(context, principal, wanted)
    first = next(pieces)  # refusals come with it, before the answer begins
    whole: Iterator[bytes] = chain([first], pieces)
    return StreamingResponse(whole, media_type=JSON_LINES, headers={"content-disposition": _SAVED_AS})
