"""Routes of a checkpoint that is kept: reading it, deleting and restoring it, pinning it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from shardkeep.protocol import routes
from shardkeep.protocol.messages import (
    CheckpointInfo,
    CheckpointState,
    CheckpointSummary,
    Page,
    PinCheckpoint,
    Step,
    TensorInfo,
)
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints import listing, reading, tags, transitions
from shardkeep_service.checkpoints.control_plane import ControlPlane, get_control_plane
from shardkeep_service.checkpoints.repository import find_checkpoint
from shardkeep_service.checkpoints.transitions import Seen
from shardkeep_service.checkpoints.views import checkpoint_info
from shardkeep_service.chunks.bodies import read_body
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.seen_versions import seen_version
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["checkpoints"])

Context = Annotated[ServiceContext, Depends(get_context)]
Control = Annotated[ControlPlane, Depends(get_control_plane)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]
Deleter = Annotated[Principal, Depends(requires(Scope.DELETE))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]
IfMatch = Annotated[str | None, Header(alias="If-Match")]
ActingAttempt = Annotated[str | None, Header(alias=routes.ATTEMPT_HEADER)]
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
        return _tagged(response, checkpoint_info(session, checkpoint))


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
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[TensorInfo]:
    """The tensors of a committed checkpoint, by name."""
    return reading.list_tensors(
        context, control.indexes, principal, checkpoint, prefix=prefix, limit=limit, cursor=cursor
    )


@router.post(routes.LOAD_PLAN)
async def plan_load(
    context: Context, control: Control, principal: Reader, request: Request, checkpoint: str
) -> Response:
    """Which segments hold what a load request asks for."""
    body = await read_body(request, limit_bytes=context.settings.max_json_bytes)
    plan = await run_in_threadpool(reading.plan, context, control.indexes, principal, checkpoint, body)
    return Response(plan, media_type=routes.BINARY_CONTENT_TYPE)


@router.delete(routes.CHECKPOINT)
def delete_checkpoint(
    context: Context,
    principal: Deleter,
    checkpoint: str,
    response: Response,
    if_match: IfMatch = None,
    attempt: ActingAttempt = None,
) -> CheckpointInfo:
    """Deletes a checkpoint, restorable until it is purged."""
    seen = Seen(seen_version(if_match), attempt)
    return _tagged(response, transitions.delete_checkpoint(context, principal, checkpoint, seen))


@router.post(routes.RESTORE)
def restore_checkpoint(
    context: Context,
    principal: Deleter,
    checkpoint: str,
    response: Response,
    if_match: IfMatch = None,
    attempt: ActingAttempt = None,
) -> CheckpointInfo:
    """Undoes a delete."""
    seen = Seen(seen_version(if_match), attempt)
    return _tagged(response, transitions.restore_checkpoint(context, principal, checkpoint, seen))


@router.post(routes.ACCEPT)
def accept_checkpoint(
    context: Context, principal: Admin, checkpoint: str, response: Response, if_match: IfMatch = None
) -> CheckpointInfo:
    """Commits a checkpoint that a rebuild of the catalogue found whole, without a record of its commit."""
    seen = Seen(seen_version(if_match))
    return _tagged(response, transitions.accept_checkpoint(context, principal, checkpoint, seen))


@router.put(routes.PIN)
def pin_checkpoint(
    context: Context,
    principal: Writer,
    checkpoint: str,
    response: Response,
    body: PinCheckpoint | None = None,
    if_match: IfMatch = None,
    attempt: ActingAttempt = None,
) -> CheckpointInfo:
    """Keeps a checkpoint whatever retention says."""
    seen = Seen(seen_version(if_match), attempt)
    reason = "" if body is None else body.reason
    return _tagged(response, transitions.pin_checkpoint(context, principal, checkpoint, seen, reason=reason))


@router.delete(routes.PIN)
def unpin_checkpoint(
    context: Context,
    principal: Writer,
    checkpoint: str,
    response: Response,
    if_match: IfMatch = None,
    attempt: ActingAttempt = None,
) -> CheckpointInfo:
    """Leaves a checkpoint to retention again."""
    seen = Seen(seen_version(if_match), attempt)
    return _tagged(response, transitions.unpin_checkpoint(context, principal, checkpoint, seen))


@router.put(routes.TAG)
def set_tag(
    context: Context, principal: Writer, checkpoint: str, tag: str, response: Response, only: bool = False
) -> CheckpointInfo:
    """Tags a checkpoint; with `only` the run's other checkpoints lose the tag."""
    return _tagged(response, tags.set_tag(context, principal, checkpoint, tag, only=only))


@router.delete(routes.TAG)
def remove_tag(context: Context, principal: Writer, checkpoint: str, tag: str, response: Response) -> CheckpointInfo:
    """Takes a tag from a checkpoint."""
    return _tagged(response, tags.remove_tag(context, principal, checkpoint, tag))


def _tagged(response: Response, info: CheckpointInfo) -> CheckpointInfo:
    response.headers["etag"] = f'"{info.version}"'
    return info
