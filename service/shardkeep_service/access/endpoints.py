"""The route of the token itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from shardkeep.protocol import routes
from shardkeep.protocol.messages import TokenInfo
from shardkeep_service.access import repository
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.access.views import token_info
from shardkeep_service.projects.models import Project
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter()


@router.get(routes.TOKEN_SELF)
def token_self(
    context: Annotated[ServiceContext, Depends(get_context)],
    principal: Annotated[Principal, Depends(requires(Scope.READ))],
) -> TokenInfo:
    """What the token of this request may do, and until when."""
    with context.database.read() as session:
        token = repository.token_by_id(session, principal.token_id)
        assert token is not None  # tokens are revoked, never removed
        project = session.get(Project, token.project_id) if token.project_id else None
        return token_info(token, project_name=project.name if project else None)
