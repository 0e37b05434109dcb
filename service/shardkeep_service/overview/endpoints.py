"""The route of the overview."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from shardkeep.protocol import routes
from shardkeep.protocol.messages import OverviewInfo
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.overview.service import Overviews
from shardkeep_service.overview.stretches import WINDOW_HOURS_LIMIT

router = APIRouter(tags=["overview"])

Reader = Annotated[Principal, Depends(requires(Scope.READ))]
WindowHours = Annotated[int, Query(ge=1, le=WINDOW_HOURS_LIMIT, description="How far `saves` goes back.")]


@router.get(routes.OVERVIEW)
def overview(
    request: Request, principal: Reader, project: str | None = None, window_hours: WindowHours = 168
) -> OverviewInfo:
    """What is stored, how it grows and how saves went, some seconds old; older while a newer one is being counted."""
    overviews: Overviews = request.app.state.overviews
    return overviews.overview(principal, project, window_hours=window_hours)
