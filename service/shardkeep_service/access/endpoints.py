"""The routes of tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from shardkeep.protocol import routes
from shardkeep.protocol.messages import CreateJobToken, CreateToken, NewToken, Page, TokenInfo
from shardkeep_service.access import job_tokens, repository, tokens
from shardkeep_service.access.audit_endpoints import router as audit_router
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.access.gate import Gate
from shardkeep_service.access.quota_endpoints import router as quota_router
from shardkeep_service.access.views import token_info
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["access"])

Context = Annotated[ServiceContext, Depends(get_context)]
Anyone = Annotated[Principal, Depends(requires(Scope.METRICS))]
Writer = Annotated[Principal, Depends(requires(Scope.WRITE))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]


@router.get(routes.TOKEN_SELF)
def token_self(context: Context, principal: Anyone) -> TokenInfo:
    """What the token of this request may do, and until when."""
    with context.database.read() as session:
        token = repository.token_by_id(session, principal.token_id)
        assert token is not None  # tokens are revoked, never removed
        return token_info(session, token)


@router.post(routes.JOB_TOKENS, status_code=201)
def mint_job_token(context: Context, principal: Writer, body: CreateJobToken) -> NewToken:
    """Makes a short-lived token for the jobs of one run. Its text is in this answer only."""
    return job_tokens.mint_job_token(context, principal, body)


@router.post(routes.TOKENS, status_code=201)
def create_token(context: Context, principal: Admin, body: CreateToken) -> NewToken:
    """Makes a token that reaches no further than the one that asks. Its text is in this answer only."""
    return tokens.make_token(context, principal, body)


@router.get(routes.TOKENS)
def list_tokens(
    context: Context,
    principal: Admin,
    project: str | None = None,
    living: bool = False,
    parent: Annotated[str | None, Query(max_length=64)] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[TokenInfo]:
    """Tokens, newest first; with `project` those that may see it, with `living` those that can still be used, with
    `parent` those that this token minted for jobs, which are revoked with it.
    """
    wanted = tokens.TokenFilter(project=project, living=living, parent=parent)
    return tokens.list_tokens(context, principal, wanted, limit=limit, cursor=cursor)


@router.get(routes.TOKEN)
def get_token(context: Context, principal: Admin, token: str) -> TokenInfo:
    """One token."""
    return tokens.get_token(context, principal, token)


@router.delete(routes.TOKEN)
def revoke_token(context: Context, principal: Admin, token: str, request: Request) -> TokenInfo:
    """Revokes a token, and those it minted: at once here, within a second on every other replica."""
    info = tokens.revoke_token(context, principal, token)
    gate: Gate = request.app.state.gate
    gate.forget()
    return info


for _router in (quota_router, audit_router):
    router.routes.extend(_router.routes)
