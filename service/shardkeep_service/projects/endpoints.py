"""Routes of projects."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from shardkeep.protocol import routes
from shardkeep.protocol.messages import CreateProject, Page, ProjectInfo, Restore
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.projects import deletion, service
from shardkeep_service.seen_versions import IfMatch, seen_version, with_etag
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["projects"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]
Search = Annotated[str, Query(max_length=128, description="Part of a name, in whatever case.")]


@router.post(routes.PROJECTS, responses={201: {"model": ProjectInfo, "description": "made now"}})
def create_project(context: Context, principal: Admin, body: CreateProject, response: Response) -> ProjectInfo:
    """Makes a project: 201, or 200 where it exists."""
    info, created = service.create_project(context, principal, body.name)
    response.status_code = 201 if created else 200
    return info


@router.get(routes.PROJECTS)
def list_projects(
    context: Context,
    principal: Reader,
    deleted: bool = False,
    search: Search = "",
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[ProjectInfo]:
    """The projects the token may see, by name; `deleted` gives those that can be restored."""
    return service.list_projects(context, principal, deleted=deleted, search=search, limit=limit, cursor=cursor)


@router.get(routes.PROJECT)
def get_project(context: Context, principal: Reader, project: str) -> ProjectInfo:
    """One project."""
    return service.get_project(context, principal, project)


@router.get(routes.PROJECT_BY_ID)
def get_project_by_id(context: Context, principal: Reader, project: str, response: Response) -> ProjectInfo:
    """One project, a deleted one too; its version is the ETag."""
    return with_etag(response, deletion.get_project_by_id(context, principal, project))


@router.delete(routes.PROJECT_BY_ID)
def delete_project(
    context: Context, principal: Admin, project: str, response: Response, force: bool = False, if_match: IfMatch = None
) -> ProjectInfo:
    """Deletes a project and its runs, restorably; `force` also while they are saved to or have pinned checkpoints."""
    version = seen_version(if_match)
    return with_etag(response, deletion.delete_project(context, principal, project, version=version, force=force))


@router.post(routes.PROJECT_RESTORE)
def restore_project(
    context: Context,
    principal: Admin,
    project: str,
    response: Response,
    body: Restore | None = None,
    if_match: IfMatch = None,
) -> ProjectInfo:
    """Undoes a delete: the project comes back with the runs that were deleted with it."""
    version, name = seen_version(if_match), None if body is None else body.name
    return with_etag(response, deletion.restore_project(context, principal, project, version=version, name=name))
