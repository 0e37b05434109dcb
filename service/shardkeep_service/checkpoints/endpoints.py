"""Routes of a checkpoint while it is being saved."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from shardkeep.protocol import routes
from shardkeep.protocol.messages import AbortCheckpoint, CheckpointState, OpenAnswer, OpenCheckpoint, Rank, StateAnswer
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints.aborting import abort_checkpoint
from shardkeep_service.checkpoints.arrival import check_manifest
from shardkeep_service.checkpoints.contents_endpoints import router as contents_router
from shardkeep_service.checkpoints.control_plane import ControlPlane, get_control_plane
from shardkeep_service.checkpoints.opening import Opening
from shardkeep_service.checkpoints.reading_endpoints import router as reading_router
from shardkeep_service.checkpoints.repository import unknown_checkpoint
from shardkeep_service.checkpoints.save_endpoints import router as save_router
from shardkeep_service.checkpoints.sessions import Beat
from shardkeep_service.checkpoints.states import Snapshot, load_snapshot
from shardkeep_service.checkpoints.transition_endpoints import router as transition_router
from shardkeep_service.chunks.bodies import received_body
from shardkeep_service.long_poll import WaitSeconds
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["checkpoints"])

Context = Annotated[ServiceContext, Depends(get_context)]
Control = Annotated[ControlPlane, Depends(get_control_plane)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]
RankNumber = Annotated[int, Path(ge=0, lt=1 << 31)]


@router.post(routes.ATTEMPT_CHECKPOINTS)
def open_checkpoint(control: Control, principal: Writer, attempt: str, body: OpenCheckpoint) -> OpenAnswer:
    """Takes part in a save; the first rank creates the checkpoint."""
    return control.openings.submit(Opening(principal, attempt, body))


@router.post(routes.BEAT)
def beat(control: Control, principal: Writer, checkpoint: str, rank: RankNumber) -> StateAnswer:
    """Renews a rank's session and tells the state."""
    return control.beats.submit(Beat(principal, checkpoint, rank))


@router.get(routes.STATE)
async def get_state(
    context: Context,
    control: Control,
    principal: Reader,
    checkpoint: str,
    known: CheckpointState | None = None,
    arrived: Annotated[int | None, Query(ge=0)] = None,
    rank: Annotated[Rank | None, Query()] = None,
    wait_seconds: WaitSeconds = 0,
) -> StateAnswer:
    """The state, at once if it is not `known`; else once it changes, or after `wait_seconds`.

    `arrived` counts as known too where it is given, and is looked at about once a second. With `rank` and a token that
    may
    write, asking renews the rank's session, and the rank's missing chunks are told.
    """

    def has_news(look: Snapshot) -> bool:
        return look.differs(known=known, arrived=arrived, rank=rank)

    if rank is not None and principal.scope.includes(Scope.WRITE):
        answer = await run_in_threadpool(control.beats.submit, Beat(principal, checkpoint, rank))
        if not wait_seconds or answer.state is not known or answer.missing_chunks:
            return answer
    else:
        seen = await run_in_threadpool(_look, context, principal, checkpoint)
        if not wait_seconds or has_news(seen):
            return seen.answer(rank)
    return (await control.states.wait_for(checkpoint, has_news, wait_seconds=wait_seconds)).answer(rank)


@router.post(routes.ABORT)
def abort(context: Context, principal: Writer, checkpoint: str, body: AbortCheckpoint) -> StateAnswer:
    """Ends an open checkpoint because a rank gave up."""
    abort_checkpoint(context, principal, checkpoint, body)
    return _look(context, principal, checkpoint).answer(body.rank)


@router.put(routes.MANIFEST, status_code=202)
async def put_manifest(
    context: Context, control: Control, principal: Writer, request: Request, checkpoint: str, rank: RankNumber
) -> StateAnswer:
    """Takes what one rank saved; the last one begins validation, whose end the state tells."""
    async with received_body(request, limit_bytes=context.settings.max_manifest_bytes) as body:
        return await run_in_threadpool(_take_manifest, context, control, principal, checkpoint, rank, body)


def _take_manifest(
    context: ServiceContext,
    control: ControlPlane,
    principal: Principal,
    checkpoint_id: str,
    rank: int,
    body: memoryview,
) -> StateAnswer:
    arrival = check_manifest(context, principal, checkpoint_id, rank, body)
    if isinstance(arrival, StateAnswer):
        return arrival
    context.blob_store.put(arrival.object_key, body)
    arrived = control.arrivals.submit(arrival)
    if arrived.completed:
        control.validator.submit(checkpoint_id)
        context.board.notify(checkpoint_id)
    return arrived.snapshot.answer(rank)


def _look(context: ServiceContext, principal: Principal, checkpoint_id: str) -> Snapshot:
    with context.database.read() as session:
        snapshot = load_snapshot(session, checkpoint_id)
    if not principal.sees_run(snapshot.project_id, snapshot.run_id):
        raise unknown_checkpoint()
    return snapshot


router.routes.extend(reading_router.routes)
router.routes.extend(contents_router.routes)
router.routes.extend(transition_router.routes)
router.routes.extend(save_router.routes)
