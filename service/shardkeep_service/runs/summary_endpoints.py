"""The route of the list of all runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from shardkeep.protocol import routes
from shardkeep.protocol.messages import Page, RunState, RunSummary
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.runs.summaries import RunFilter, RunOrder, RunSort, list_all_runs
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["runs"])

SEARCH_CHARACTERS = 257
"""`project/run` has no more."""

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Search = Annotated[str, Query(max_length=SEARCH_CHARACTERS, description="Part of `project/run`, in whatever case.")]


@router.get(routes.ALL_RUNS)
def list_all_runs_of_the_token(
    context: Context,
    principal: Reader,
    project: str | None = None,
    search: Search = "",
    state: RunState | None = None,
    sort: RunSort = "last_committed",
    order: RunOrder = "desc",
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[RunSummary]:
    """The runs of all projects; deleted ones only with `state=deleted`. What has no value to sort by comes last."""
    wanted = RunFilter(project=project, search=search, state=state, sort=sort, order=order)
    return list_all_runs(context, principal, wanted, limit=limit, cursor=cursor)
