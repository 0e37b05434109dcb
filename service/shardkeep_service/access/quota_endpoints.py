"""The routes of quotas."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from shardkeep.protocol import routes
from shardkeep.protocol.messages import QuotaInfo, SetQuota
from shardkeep_service.access import quotas
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.seen_versions import IfMatch, seen_version_if_given, with_etag
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["access"])

Context = Annotated[ServiceContext, Depends(get_context)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]


@router.get(routes.QUOTA)
def get_quota(context: Context, principal: Reader, project: str, response: Response) -> QuotaInfo:
    """What a project may use, and what it uses; the version of its limits is the ETag."""
    return with_etag(response, quotas.get_quota(context, principal, project))


@router.put(routes.QUOTA)
def set_quota(
    context: Context, principal: Admin, project: str, body: SetQuota, response: Response, if_match: IfMatch = None
) -> QuotaInfo:
    """Sets both limits of a project; one that is left out or null is none. Needs an admin token of all projects."""
    seen = seen_version_if_given(if_match)
    return with_etag(response, quotas.set_quota(context, principal, project, body, seen=seen))
