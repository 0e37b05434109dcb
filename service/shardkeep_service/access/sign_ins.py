"""Sign-ins of browsers: begun with a token, kept as a row that knows the cookie's hash, ended by hand or by time.

A sign-in is worth what its token is worth at each moment: it has no scope of its own, never outlives the token, and
ends with its revocation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import new_id
from shardkeep_service.access import repository
from shardkeep_service.access.audit import record
from shardkeep_service.access.browser_cookie import is_secret, new_secret, secret_hash
from shardkeep_service.access.models import SignInRow, Token
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.service import principal_of_token
from shardkeep_service.errors import Refusal

LIVING_LIMIT: Final = 100
"""Sign-ins of one token at a time; beyond it the oldest end."""
_REMOVED_AT_ONCE: Final = 1_000
_UNSEEN: Final[dict[str, Any]] = {"execution_options": {"synchronize_session": False}}
"""For statements on rows for which the session has no object that is still needed."""


def begin_sign_in(
    session: Session, principal: Principal, *, now: int, lifetime_micros: int, address: str
) -> tuple[SignInRow, str]:
    """A new sign-in with this token: its row, and the secret for the cookie, which is known only here and now.

    Rows whose time is over go, of every token: nothing else looks for them.
    """
    repository.lock_token(session, principal.token_id)
    _end_oldest(session, principal.token_id)
    _remove_expired(session, now)
    secret = new_secret()
    ends = now + lifetime_micros
    row = SignInRow(
        id=new_id("sgn"),
        hash=secret_hash(secret),
        token_id=principal.token_id,
        created_at=now,
        expires_at=ends if principal.expires_at is None else min(ends, principal.expires_at),
        last_used_at=now,
    )
    session.add(row)
    repository.touch(session, {principal.token_id: now})
    _record(session, principal, "sign_in.create", row.id, address)
    return row, secret


def sign_in_of(session: Session, secret: str, *, now: int) -> tuple[SignInRow, Token, Principal]:
    """The living sign-in of a cookie, its token and who that is; Refusal `sign_in_ended` where there is none."""
    if not is_secret(secret):
        raise _ended("it is unknown")
    query = select(SignInRow, Token).join(Token, Token.id == SignInRow.token_id)
    found = session.execute(query.where(SignInRow.hash == secret_hash(secret))).one_or_none()
    if found is None:
        raise _ended("it is unknown, was signed out, or its time is over")
    row, token = found
    if row.expires_at <= now:
        raise _ended("its time is over")
    if token.revoked_at is not None:
        raise _ended("its token was revoked")
    return row, token, principal_of_token(session, token, now=now)


def end_sign_in(session: Session, secret: str, *, now: int, address: str) -> None:
    """Ends the sign-in of a cookie, for good; one that has ended already changes nothing."""
    try:
        row, _, principal = sign_in_of(session, secret, now=now)
    except Refusal:
        return
    ended = session.scalars(delete(SignInRow).where(SignInRow.id == row.id).returning(SignInRow.id), **_UNSEEN).all()
    if ended:
        _record(session, principal, "sign_in.delete", row.id, address)


def touch_sign_ins(session: Session, uses: Mapping[str, int]) -> None:
    """Notes when sign-ins were last used, by the hashes of their cookies."""
    for hashed, used_at in sorted(uses.items()):
        older = SignInRow.last_used_at.is_(None) | (SignInRow.last_used_at < used_at)
        session.execute(
            update(SignInRow).where(SignInRow.hash == hashed, older).values(last_used_at=used_at),
            **_UNSEEN,
        )


def _end_oldest(session: Session, token_id: str) -> None:
    """Makes room for one more; the token is locked."""
    newest = select(SignInRow.id).where(SignInRow.token_id == token_id)
    newest = newest.order_by(SignInRow.created_at.desc(), SignInRow.id.desc()).offset(LIVING_LIMIT - 1)
    _remove(session, session.scalars(newest).all())


def _remove_expired(session: Session, now: int) -> None:
    """Those that nobody else is removing at this moment."""
    expired = select(SignInRow.id).where(SignInRow.expires_at <= now).order_by(SignInRow.expires_at)
    _remove(session, session.scalars(expired.limit(_REMOVED_AT_ONCE).with_for_update(skip_locked=True)).all())


def _remove(session: Session, ids: Sequence[str]) -> None:
    if ids:
        session.execute(delete(SignInRow).where(SignInRow.id.in_(ids)), **_UNSEEN)


def _record(session: Session, principal: Principal, action: str, sign_in_id: str, address: str) -> None:
    for project_id in sorted(principal.project_ids or ()) or (None,):
        record(session, principal, action, target=sign_in_id, project_id=project_id, detail={"address": address})


def _ended(reason: str) -> Refusal:
    return Refusal(ErrorCode.SIGN_IN_ENDED, f"this sign-in has ended: {reason}; sign in again")
