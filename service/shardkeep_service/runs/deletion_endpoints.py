"""Routes of a run by its id: deleting and restoring it. By id, since a deleted run has no name, or another has it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from shardkeep.protocol import routes
from shardkeep.protocol.messages import Restore, RunInfo
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.runs import deletion
from shardkeep_service.seen_versions import IfMatch, seen_version, with_etag
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["runs"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Deleter = Annotated[Principal, Depends(requires(Scope.DELETE))]


@router.get(routes.RUN_BY_ID)
def get_run_by_id(context: Context, principal: Reader, run: str, response: Response) -> RunInfo:
    """One run, a deleted one too; its version is the ETag."""
    return with_etag(response, deletion.get_run_by_id(context, principal, run))


@router.delete(routes.RUN_BY_ID)
def delete_run(
    context: Context, principal: Deleter, run: str, response: Response, force: bool = False, if_match: IfMatch = None
) -> RunInfo:
    """Deletes a run and its checkpoints, restorably; `force` also while it is saved to or has pinned checkpoints."""
    version = seen_version(if_match)
    return with_etag(response, deletion.delete_run(context, principal, run, version=version, force=force))


@router.post(routes.RUN_RESTORE)
def restore_run(
    context: Context,
    principal: Deleter,
    run: str,
    response: Response,
    body: Restore | None = None,
    if_match: IfMatch = None,
) -> RunInfo:
    """Undoes a delete: the run comes back with the checkpoints that were deleted with it."""
    version, name = seen_version(if_match), None if body is None else body.name
    return with_etag(response, deletion.restore_run(context, principal, run, version=version, name=name))
