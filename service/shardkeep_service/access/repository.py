"""SQL on tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.orm import Session

from shardkeep_service.access.models import Token, TokenProject


def token_by_hash(session: Session, token_hash: str) -> Token | None:
    """The token with that SHA-256, revoked and expired ones too."""
    return session.scalars(select(Token).where(Token.hash == token_hash)).one_or_none()


def token_by_id(session: Session, token_id: str) -> Token | None:
    """The token with that id."""
    return session.get(Token, token_id)


def lock_token(session: Session, token_id: str) -> Token | None:
    """The token as it is now, locked until the transaction ends."""
    query = select(Token).where(Token.id == token_id).with_for_update().execution_options(populate_existing=True)
    return session.scalars(query).one_or_none()


def projects_of(session: Session, token_id: str) -> frozenset[str]:
    """The ids of the projects a bound token may see."""
    return frozenset(session.scalars(select(TokenProject.project_id).where(TokenProject.token_id == token_id)))


def projects_of_all(session: Session, token_ids: Collection[str]) -> dict[str, list[str]]:
    """The ids of the projects of several tokens."""
    found: dict[str, list[str]] = {}
    query = select(TokenProject).where(TokenProject.token_id.in_(token_ids)).order_by(TokenProject.project_id)
    for row in session.scalars(query):
        found.setdefault(row.token_id, []).append(row.project_id)
    return found


def tokens(session: Session) -> Sequence[Token]:
    """All tokens, oldest first."""
    return session.scalars(select(Token).order_by(Token.created_at, Token.id)).all()


def tokens_before(
    session: Session,
    position: tuple[int, str] | None,
    *,
    within: Collection[str] | None,
    project_id: str | None,
    parent_id: str | None,
    living_at: int | None,
    limit: int,
) -> Sequence[Token]:
    """Tokens, newest first, before `position`: those that reach no further than the projects `within`, that may see
    `project_id`, that `parent_id` minted, and that are neither revoked nor expired at `living_at`, as far as these are
    given.
    """
    query = select(Token).order_by(Token.created_at.desc(), Token.id.desc()).limit(limit)
    if position is not None:
        created_at, token_id = position
        earlier = (Token.created_at == created_at) & (Token.id < token_id)
        query = query.where((Token.created_at < created_at) | earlier)
    if within is not None:
        query = _only_within(query, within)
    if project_id is not None:
        bound = select(TokenProject).where(TokenProject.token_id == Token.id, TokenProject.project_id == project_id)
        query = query.where(or_(Token.project_id.is_(None), bound.exists()))
    if parent_id is not None:
        query = query.where(Token.parent_id == parent_id)
    if living_at is not None:
        query = query.where(_living(living_at))
    return session.scalars(query).all()


def living_children(session: Session, parent_id: str, now: int) -> int:
    """How many tokens that this one minted may still be used."""
    query = select(func.count()).select_from(Token).where(Token.parent_id == parent_id, _living(now))
    return session.scalars(query).one()


def revoke(session: Session, token_id: str, now: int) -> bool:
    """Revokes a token and those it minted, and says whether it was not before; one that was keeps its time."""
    mine = or_(Token.id == token_id, Token.parent_id == token_id)
    statement = update(Token).where(mine, Token.revoked_at.is_(None)).values(revoked_at=now).returning(Token.id)
    changed = session.scalars(statement, execution_options={"synchronize_session": False}).all()
    return token_id in changed


def touch(session: Session, uses: Mapping[str, int]) -> None:
    """Notes when tokens were last used, each at a database time; a later one that is noted already stays."""
    for token_id, used_at in sorted(uses.items()):
        older = or_(Token.last_used_at.is_(None), Token.last_used_at < used_at)
        session.execute(update(Token).where(Token.id == token_id, older).values(last_used_at=used_at))


def _only_within(query: Select[Token], project_ids: Collection[str]) -> Select[Token]:
    """A token that reaches no further has its first project among these, by which an index finds it."""
    beyond = select(TokenProject).where(
        TokenProject.token_id == Token.id, TokenProject.project_id.not_in(sorted(project_ids))
    )
    return query.where(Token.project_id.in_(sorted(project_ids)), ~beyond.exists())


def _living(now: int) -> ColumnElement[bool]:
    return Token.revoked_at.is_(None) & or_(Token.expires_at.is_(None), Token.expires_at > now)
