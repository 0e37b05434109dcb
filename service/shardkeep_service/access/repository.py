"""SQL on tokens."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from shardkeep_service.access.models import Token


def token_by_hash(session: Session, token_hash: str) -> Token | None:
    """The token with that SHA-256, revoked and expired ones too."""
    return session.scalars(select(Token).where(Token.hash == token_hash)).one_or_none()


def token_by_id(session: Session, token_id: str) -> Token | None:
    """The token with that id."""
    return session.get(Token, token_id)


def tokens(session: Session) -> Sequence[Token]:
    """All tokens, oldest first."""
    return session.scalars(select(Token).order_by(Token.created_at, Token.id)).all()


def revoke(session: Session, token_id: str, now: int) -> None:
    """Revokes a token; one that already is keeps its time."""
    session.execute(update(Token).where(Token.id == token_id, Token.revoked_at.is_(None)).values(revoked_at=now))


def touch(session: Session, token_id: str, now: int, *, not_since: int) -> None:
    """Notes a use, unless one was noted after `not_since`."""
    stale = or_(Token.last_used_at.is_(None), Token.last_used_at < not_since)
    session.execute(update(Token).where(Token.id == token_id, stale).values(last_used_at=now))
