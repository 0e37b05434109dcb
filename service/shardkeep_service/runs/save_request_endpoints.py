"""Routes of requests to save now, and the long poll by which training hears of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.concurrency import run_in_threadpool

from shardkeep.protocol import routes
from shardkeep.protocol.messages import SaveRequestInfo
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints.control_plane import ControlPlane, get_control_plane
from shardkeep_service.long_poll import WaitSeconds
from shardkeep_service.runs import save_requests
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["runs"])

Context = Annotated[ServiceContext, Depends(get_context)]
Control = Annotated[ControlPlane, Depends(get_control_plane)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]
Known = Annotated[int, Query(ge=0, lt=1 << 31)]
Number = Annotated[
    int | None,
    Query(
        ge=1,
        lt=1 << 31,
        description="The request that is meant: the last one while that waits, else the next. Makes a repetition the"
        " same request, also after a checkpoint took it up.",
    ),
]


@router.post(routes.RUN_SAVE_REQUEST)
def request_save(context: Context, principal: Writer, project: str, run: str, number: Number = None) -> SaveRequestInfo:
    """Asks training to save at its next step; while a request waits, this is the same one."""
    return save_requests.request_save(context, principal, project, run, number=number)


@router.get(routes.RUN_SAVE_REQUEST)
def get_save_request(context: Context, principal: Reader, project: str, run: str) -> SaveRequestInfo:
    """The last request of the run's current attempt, and what became of it."""
    return save_requests.present_request(context, principal, project, run)


@router.get(routes.ATTEMPT_SAVE_REQUEST)
async def wait_for_save_request(
    context: Context,
    control: Control,
    principal: Reader,
    attempt: str,
    known: Known = 0,
    wait_seconds: WaitSeconds = 0,
) -> SaveRequestInfo:
    """The attempt's last request: at once if its number is above `known`, else once it is, or after `wait_seconds`."""
    look = await run_in_threadpool(save_requests.look_at_attempt, context, principal, attempt)
    if wait_seconds and not look.has_news(known):
        key = save_requests.board_key(attempt)
        look = await control.save_requests.wait_for(key, lambda seen: seen.has_news(known), wait_seconds=wait_seconds)
    return look.answer()
