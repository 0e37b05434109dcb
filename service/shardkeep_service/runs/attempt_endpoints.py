"""Routes of attempts: the resume decision and inventories. Opening checkpoints is with the checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from starlette.concurrency import run_in_threadpool

from shardkeep.protocol import routes
from shardkeep.protocol.messages import AttemptInfo, DecideResume, InventoryAnswer, PostInventory, ResumeDecision
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints.control_plane import ControlPlane, get_control_plane
from shardkeep_service.long_poll import WaitSeconds
from shardkeep_service.runs import attempts, resume
from shardkeep_service.runs.inventories import check_posting, find_layout, load_posted
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["attempts"])

Context = Annotated[ServiceContext, Depends(get_context)]
Control = Annotated[ControlPlane, Depends(get_control_plane)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]
LayoutNumber = Annotated[int, Path(ge=0, lt=1 << 31)]
RankNumber = Annotated[int, Path(ge=0, lt=1 << 31)]


@router.get(routes.ATTEMPT)
def get_attempt(context: Context, principal: Reader, attempt: str) -> AttemptInfo:
    """One attempt."""
    return attempts.get_attempt(context, principal, attempt)


@router.post(routes.RESUME)
def decide_resume(context: Context, principal: Writer, attempt: str, body: DecideResume) -> ResumeDecision:
    """What all ranks of the attempt resume from; the first to ask decides."""
    return resume.decide_resume(context, principal, attempt, body)


@router.put(routes.INVENTORY, response_model=InventoryAnswer)
def put_inventory(
    context: Context,
    control: Control,
    principal: Writer,
    attempt: str,
    layout: LayoutNumber,
    rank: RankNumber,
    body: PostInventory,
) -> Response:
    """Takes what this rank holds as plain tensors; gives the owners when it was the last one missing."""
    posting = control.postings.submit(check_posting(context, principal, attempt, layout, rank, body.tensors))
    posted = load_posted(context.database, posting.layout.board_key)
    if posted.complete:
        context.board.notify(posting.layout.board_key)
    return _json(control.owner_plans.answer(posted, rank))


@router.get(routes.INVENTORY, response_model=InventoryAnswer)
async def get_inventory(
    context: Context,
    control: Control,
    principal: Reader,
    attempt: str,
    layout: LayoutNumber,
    rank: RankNumber,
    wait_seconds: WaitSeconds = 0,
) -> Response:
    """The owners, once every rank has posted; waits for that at most `wait_seconds`."""
    found = await run_in_threadpool(find_layout, context, principal, attempt, layout, rank)
    posted = await control.inventories.wait_for(
        found.board_key, lambda posted: posted.complete, wait_seconds=wait_seconds
    )
    return await run_in_threadpool(lambda: _json(control.owner_plans.answer(posted, rank)))


def _json(answer: InventoryAnswer) -> Response:
    """Three lists of thousands of numbers per rank are written once, not validated again on the way out."""
    return Response(answer.model_dump_json().encode(), media_type="application/json")
