"""Signing in, asking who is signed in, signing out: each one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from shardkeep.protocol.messages import SignedIn
from shardkeep_service.access import repository
from shardkeep_service.access.browser_cookie import csrf_of
from shardkeep_service.access.models import SignInRow, Token
from shardkeep_service.access.secrets import is_token_text
from shardkeep_service.access.service import check_token_text, principal_of
from shardkeep_service.access.sign_in_limit import SignInLimit
from shardkeep_service.access.sign_ins import begin_sign_in, end_sign_in, sign_in_of
from shardkeep_service.access.views import token_info
from shardkeep_service.moments import MICROS_PER_SECOND, micros, moment
from shardkeep_service.service_context import ServiceContext


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that has just begun: `secret` is for the cookie, which lives for `seconds`."""

    secret: str
    seconds: int
    answer: SignedIn


def sign_in(context: ServiceContext, limit: SignInLimit, text: str, *, address: str, previous: str | None) -> Begun:
    """Begins a sign-in with this token, in place of the `previous` one of the browser.

    Refuses `token_invalid` and `token_expired`; `too_many_sign_ins` where too many failed.
    """
    with limit.attempt(address, asks_database=is_token_text(text)):
        check_token_text(text)
        with context.database.read() as session:  # what is refused takes no lock
            principal_of(session, text, now=context.database.now(session))
        with context.database.write() as session:
            now = context.database.now(session)
            principal = principal_of(session, text, now=now)
            if previous is not None:
                end_sign_in(session, previous, now=now, address=address)
            lifetime = micros(context.settings.ui_sign_in_seconds)
            row, secret = begin_sign_in(session, principal, now=now, lifetime_micros=lifetime, address=address)
            token = repository.token_by_id(session, principal.token_id)
            assert token is not None  # tokens are revoked, never removed
            seconds = (row.expires_at - now) // MICROS_PER_SECOND
            return Begun(secret, seconds, _answer(session, row, token, secret))


def signed_in(context: ServiceContext, secret: str) -> SignedIn:
    """Who is signed in; Refusal `sign_in_ended`."""
    with context.database.read() as session:
        row, token, _ = sign_in_of(session, secret, now=context.database.now(session))
        return _answer(session, row, token, secret)


def sign_out(context: ServiceContext, secret: str, *, address: str) -> None:
    """Ends the sign-in, if it lives."""
    with context.database.write() as session:
        end_sign_in(session, secret, now=context.database.now(session), address=address)


def _answer(session: Session, row: SignInRow, token: Token, secret: str) -> SignedIn:
    ends = moment(row.expires_at)
    return SignedIn(token=token_info(session, token), csrf=csrf_of(secret), expires_at=ends)
