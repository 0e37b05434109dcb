"""Routes of runs and of what is last in them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from shardkeep.protocol import routes
from shardkeep.protocol.messages import (
    AttemptInfo,
    BeginAttempt,
    CheckpointState,
    CheckpointSummary,
    LatestAnswer,
    Page,
    RunInfo,
    Step,
)
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints.listing import CheckpointFilter, list_run_checkpoints
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.runs import attempts, service
from shardkeep_service.runs.attempt_endpoints import router as attempt_router
from shardkeep_service.runs.deletion_endpoints import router as deletion_router
from shardkeep_service.runs.save_request_endpoints import router as save_request_router
from shardkeep_service.runs.summary_endpoints import router as summary_router
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["runs"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]


@router.put(routes.RUN)
def ensure_run(context: Context, principal: Writer, project: str, run: str) -> RunInfo:
    """Makes a run unless it exists; with an admin token its project too."""
    return service.ensure_run(context, principal, project, run)


@router.get(routes.RUNS)
def list_runs(
    context: Context,
    principal: Reader,
    project: str,
    deleted: bool = False,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[RunInfo]:
    """The runs of a project, by name; `deleted` gives those that can be restored."""
    return service.list_runs(context, principal, project, deleted=deleted, limit=limit, cursor=cursor)


@router.get(routes.RUN)
def get_run(context: Context, principal: Reader, project: str, run: str) -> RunInfo:
    """One run."""
    return service.get_run(context, principal, project, run)


@router.get(routes.LATEST)
def latest(context: Context, principal: Reader, project: str, run: str) -> LatestAnswer:
    """The last consistent checkpoint of a run, and why newer ones are not."""
    return service.latest(context, principal, project, run)


@router.get(routes.RUN_CHECKPOINTS)
def list_checkpoints(
    context: Context,
    principal: Reader,
    project: str,
    run: str,
    state: CheckpointState | None = None,
    step: Annotated[Step | None, Query()] = None,
    step_min: Annotated[Step | None, Query()] = None,
    step_max: Annotated[Step | None, Query()] = None,
    pinned: bool | None = None,
    attempt: str | None = None,
    tag: str | None = None,
    on_line: bool | None = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[CheckpointSummary]:
    """The checkpoints of a run, newest first."""
    wanted = CheckpointFilter(state, step, step_min, step_max, pinned, attempt, tag)
    return list_run_checkpoints(
        context, principal, project, run, wanted, on_the_line=on_line, limit=limit, cursor=cursor
    )


@router.get(routes.RUN_ATTEMPTS)
def list_attempts(
    context: Context, principal: Reader, project: str, run: str, limit: PageLimit = 50, cursor: PageCursor = None
) -> Page[AttemptInfo]:
    """The attempts of a run, newest first."""
    return attempts.list_attempts(context, principal, project, run, limit=limit, cursor=cursor)


@router.post(routes.RUN_ATTEMPTS)
def begin_attempt(context: Context, principal: Writer, project: str, run: str, body: BeginAttempt) -> AttemptInfo:
    """Begins an attempt, or gives the one this launch and ordinal began before."""
    return attempts.begin_attempt(context, principal, project, run, body)


router.routes.extend(attempt_router.routes)
router.routes.extend(deletion_router.routes)
router.routes.extend(save_request_router.routes)
router.routes.extend(summary_router.routes)
