"""Administering tokens over REST: who may make, see and revoke which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CreateToken, NewToken, Page, TokenInfo
from shardkeep_service.access import repository
from shardkeep_service.access.audit import record
from shardkeep_service.access.grants import Grant, plan_grant
from shardkeep_service.access.models import Token
from shardkeep_service.access.principal import UNSEEN, Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.service import create_token, renew_text
from shardkeep_service.access.views import token_info, token_infos
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from shardkeep_service.projects.service import find_project
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "tokens"


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """Which tokens are asked for: that may see a project, that can still be used, that a token minted."""

    project: str | None = None
    living: bool = False
    parent: str | None = None


def make_token(context: ServiceContext, giver: Principal, body: CreateToken) -> NewToken:
    """A new token within what the giver may grant; repeated with its id, the same token with a fresh text."""
    with context.database.write() as session:
        now = context.database.now(session)
        named = body.projects
        project_ids = None if named is None else [find_project(session, giver, name).id for name in named]
        grant = plan_grant(giver, Scope(body.scope), project_ids, now=now, lifetime_seconds=body.expires_in_seconds)
        return issue(session, giver, grant, now=now, name=body.name, token_id=body.id)


def issue(
    session: Session,
    giver: Principal | str,
    grant: Grant,
    *,
    now: int,
    name: str,
    token_id: str | None,
    run_id: str | None = None,
    parent_id: str | None = None,
) -> NewToken:
    """Writes the token and its audit entry."""
    known = None if token_id is None else repository.lock_token(session, token_id)
    if known is not None:
        _check_repetition(session, known, grant, name=name, run_id=run_id, parent_id=parent_id)
        return NewToken(token=renew_text(known), info=token_info(session, known))
    token, text = create_token(
        session,
        now=now,
        scope=grant.scope,
        name=name,
        project_ids=grant.project_ids,
        expires_at=grant.expires_at,
        run_id=run_id,
        parent_id=parent_id,
        token_id=token_id,
    )
    info = token_info(session, token)
    detail = {"name": name, "scope": token.scope, "projects": info.projects, "run": info.run}
    for project_id in grant.project_ids or (None,):
        record(session, giver, "token.create", target=token.id, project_id=project_id, detail=detail)
    return NewToken(token=text, info=info)


def list_tokens(
    context: ServiceContext, principal: Principal, wanted: TokenFilter, *, limit: int, cursor: str | None
) -> Page[TokenInfo]:
    """Tokens, newest first. One bound to projects sees those that reach no further."""
    size = bounded_limit(limit)
    filters = asdict(wanted)
    position = decode_cursor(cursor, _LIST, filters, (int, str))
    with context.database.read() as session:
        rows = repository.tokens_before(
            session,
            None if position is None else (position[0], position[1]),
            within=principal.project_ids,
            project_id=None if wanted.project is None else find_project(session, principal, wanted.project).id,
            parent_id=wanted.parent,
            living_at=context.database.now(session) if wanted.living else None,
            limit=size + 1,
        )
        items = token_infos(session, rows[:size])
    return Page[TokenInfo](items=items, next_cursor=_cursor_after(rows, size, filters))


def get_token(context: ServiceContext, principal: Principal, token_id: str) -> TokenInfo:
    """One token; Refusal `unknown_token`."""
    with context.database.read() as session:
        return token_info(session, _find(session, principal, token_id))


def revoke_token(context: ServiceContext, principal: Principal, token_id: str) -> TokenInfo:
    """Revokes a token and those it minted, for good. Idempotent."""
    with context.database.write() as session:
        token = _find(session, principal, token_id)
        if repository.revoke(session, token_id, context.database.now(session)):
            for project_id in sorted(repository.projects_of(session, token_id)) or (None,):
                record(session, principal, "token.revoke", target=token_id, project_id=project_id)
        session.refresh(token)
        return token_info(session, token)


def _find(session: Session, principal: Principal, token_id: str) -> Token:
    token = repository.token_by_id(session, token_id)
    if token is None or not _reaches(session, principal, token):
        raise Refusal(ErrorCode.UNKNOWN_TOKEN, UNSEEN[ErrorCode.UNKNOWN_TOKEN])
    return token


def _reaches(session: Session, principal: Principal, token: Token) -> bool:
    """Whether the token is within the projects of the principal."""
    if principal.project_ids is None:
        return True
    return token.project_id is not None and repository.projects_of(session, token.id) <= principal.project_ids


def _check_repetition(
    session: Session, known: Token, grant: Grant, *, name: str, run_id: str | None, parent_id: str | None
) -> None:
    """Refuses an id that stands for another token, or for one that is in use or gone."""
    same = (known.name, known.scope, known.run_id, known.parent_id) == (name, grant.scope.value, run_id, parent_id)
    if not same or repository.projects_of(session, known.id) != frozenset(grant.project_ids):
        raise Refusal(
            ErrorCode.MALFORMED_REQUEST, f"token {known.id} exists and is another; leave the id out, or draw a new one"
        )
    if known.last_used_at is not None or known.revoked_at is not None:
        raise Refusal(
            ErrorCode.MALFORMED_REQUEST,
            f"token {known.id} was made before and {'is revoked' if known.revoked_at else 'is in use'}: its text is not"
            " shown again; make another",
        )


def _cursor_after(rows: Sequence[Token], size: int, filters: Mapping[str, object]) -> str | None:
    if len(rows) <= size:
        return None
    last = rows[size - 1]
    return encode_cursor(_LIST, filters, (last.created_at, last.id))
