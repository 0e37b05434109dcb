"""Routes that read a checkpoint, and lists of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from shardkeep.protocol import routes
from shardkeep.protocol.messages import (
    CheckpointInfo,
    CheckpointState,
    CheckpointSummary,
    Page,
    Step,
    TensorInfo,
)
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints import listing, reading
from shardkeep_service.checkpoints.control_plane import ControlPlane, get_control_plane
from shardkeep_service.checkpoints.repository import find_checkpoint
from shardkeep_service.checkpoints.views import checkpoint_info
from shardkeep_service.chunks.bodies import read_body
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.seen_versions import with_etag
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["checkpoints"])

Context = Annotated[ServiceContext, Depends(get_context)]
Control = Annotated[ControlPlane, Depends(get_control_plane)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
RankNumber = Annotated[int, Path(ge=0, lt=1 << 31)]


@router.get(routes.CHECKPOINTS)
def list_checkpoints(
    context: Context,
    principal: Reader,
    project: str | None = None,
    state: CheckpointState | None = None,
    step: Annotated[Step | None, Query()] = None,
    step_min: Annotated[Step | None, Query()] = None,
    step_max: Annotated[Step | None, Query()] = None,
    pinned: bool | None = None,
    attempt: str | None = None,
    tag: str | None = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[CheckpointSummary]:
    """The checkpoints of all runs the token may see, newest first."""
    wanted = listing.CheckpointFilter(state, step, step_min, step_max, pinned, attempt, tag)
    return listing.list_checkpoints(context, principal, project, wanted, limit=limit, cursor=cursor)


@router.get(routes.CHECKPOINT)
def get_checkpoint(context: Context, principal: Reader, checkpoint: str, response: Response) -> CheckpointInfo:
    """One checkpoint, in any state; its version is the ETag."""
    with context.database.read() as session:
        find_checkpoint(session, principal, checkpoint)
        return with_etag(response, checkpoint_info(session, checkpoint))


@router.get(routes.MANIFEST)
def get_manifest(context: Context, principal: Reader, checkpoint: str, rank: RankNumber) -> Response:
    """One rank's encoded manifest."""
    body = reading.get_manifest(context, principal, checkpoint, rank)
    return Response(bytes(body), media_type=routes.BINARY_CONTENT_TYPE)


@router.get(routes.TENSORS)
def list_tensors(
    context: Context,
    control: Control,
    principal: Reader,
    checkpoint: str,
    prefix: Annotated[str, Query(max_length=4096)] = "",
    search: Annotated[str, Query(max_length=4096)] = "",
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[TensorInfo]:
    """The tensors of a committed checkpoint, by name."""
    return reading.list_tensors(
        context, control.indexes, principal, checkpoint, prefix=prefix, search=search, limit=limit, cursor=cursor
    )


@router.post(routes.LOAD_PLAN)
async def plan_load(
    context: Context, control: Control, principal: Reader, request: Request, checkpoint: str
) -> Response:
    """Which segments hold what a load request asks for."""
    body = await read_body(request, limit_bytes=context.settings.max_json_bytes)
    plan = await run_in_threadpool(reading.plan, context, control.indexes, principal, checkpoint, body)
    return Response(plan, media_type=routes.BINARY_CONTENT_TYPE)
