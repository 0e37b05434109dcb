"""Tokens: make, recognise, revoke."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import new_id
from shardkeep_service.access import repository
from shardkeep_service.access.models import Token, TokenProject
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.secrets import is_token_text, new_token_text, shown_part, token_hash
from shardkeep_service.errors import Refusal


def create_token(
    session: Session,
    *,
    now: int,
    scope: Scope,
    name: str,
    project_ids: Sequence[str] = (),
    expires_at: int | None = None,
    run_id: str | None = None,
    parent_id: str | None = None,
    token_id: str | None = None,
) -> tuple[Token, str]:
    """A new token: its row and its text, which is known only here and now. Without projects it sees all of them."""
    text = new_token_text()
    token = Token(
        id=token_id or new_id("tok"),
        name=name,
        hash=token_hash(text),
        prefix=shown_part(text),
        scope=scope.value,
        project_id=project_ids[0] if project_ids else None,
        run_id=run_id,
        parent_id=parent_id,
        created_at=now,
        expires_at=expires_at,
    )
    session.add(token)
    session.flush()
    session.add_all(TokenProject(token_id=token.id, project_id=project_id) for project_id in project_ids)
    session.flush()
    return token, text


def renew_text(token: Token) -> str:
    """A fresh text for a token whose first was lost on the way; the old one is worth nothing from now on."""
    text = new_token_text()
    token.hash, token.prefix = token_hash(text), shown_part(text)
    return text


def check_token_text(text: str) -> None:
    """Refuses `token_invalid` what is no token, by its text alone."""
    if not is_token_text(text):
        raise _invalid()


def principal_of(session: Session, text: str, *, now: int) -> Principal:
    """Who holds this token; `token_invalid` or `token_expired` refuses."""
    check_token_text(text)
    token = repository.token_by_hash(session, token_hash(text))
    if token is None or token.revoked_at is not None or not hmac.compare_digest(token.hash, token_hash(text)):
        raise _invalid()
    return principal_of_token(session, token, now=now)


def principal_of_token(session: Session, token: Token, *, now: int) -> Principal:
    """Who holds a token that is known and not revoked; `token_expired` refuses."""
    project_ids = None if token.project_id is None else repository.projects_of(session, token.id)
    principal = Principal(token.id, token.name, Scope(token.scope), project_ids, token.expires_at, token.run_id)
    check_not_expired(principal, now=now)
    return principal


def check_not_expired(principal: Principal, *, now: int) -> None:
    """Refuses `token_expired`."""
    if principal.expires_at is not None and principal.expires_at <= now:
        raise Refusal(ErrorCode.TOKEN_EXPIRED, "the token has expired; ask an administrator for a new one")


def _invalid() -> Refusal:
    return Refusal(ErrorCode.TOKEN_INVALID, "the token is unknown or revoked; ask an administrator for a new one")
