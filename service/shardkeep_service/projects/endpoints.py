"""Routes of projects."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from shardkeep.protocol import routes
from shardkeep.protocol.messages import CreateProject, Page, ProjectInfo
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.projects import service
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["projects"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]


@router.post(routes.PROJECTS)
def create_project(context: Context, principal: Admin, body: CreateProject, response: Response) -> ProjectInfo:
    """Makes a project: 201, or 200 where it exists."""
    info, created = service.create_project(context, principal, body.name)
    response.status_code = 201 if created else 200
    return info


@router.get(routes.PROJECTS)
def list_projects(
    context: Context, principal: Reader, limit: PageLimit = 50, cursor: PageCursor = None
) -> Page[ProjectInfo]:
    """The projects the token may see, by name."""
    return service.list_projects(context, principal, limit=limit, cursor=cursor)


@router.get(routes.PROJECT)
def get_project(context: Context, principal: Reader, project: str) -> ProjectInfo:
    """One project."""
    return service.get_project(context, principal, project)
