"""Routes of saves as they go on, and of how long they took."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from shardkeep.protocol import routes
from shardkeep.protocol.messages import Page, SaveInProgress, SaveTimes
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints import save_times, saves_in_progress
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["checkpoints"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]


@router.get(routes.SAVES)
def list_saves(
    context: Context, principal: Reader, project: str | None = None, limit: PageLimit = 50, cursor: PageCursor = None
) -> Page[SaveInProgress]:
    """The checkpoints that are open or being validated, newest first, with what their ranks did so far."""
    return saves_in_progress.list_saves(context, principal, project, limit=limit, cursor=cursor)


@router.get(routes.RUN_SAVE_TIMES)
def list_save_times(
    context: Context, principal: Reader, project: str, run: str, limit: PageLimit = 50, cursor: PageCursor = None
) -> Page[SaveTimes]:
    """How long each rank of each save of a run took, newest first; a page has fewer saves the more ranks they have."""
    return save_times.list_save_times(context, principal, project, run, limit=limit, cursor=cursor)
