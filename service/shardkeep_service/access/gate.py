"""The gate: from a bearer token, or the secret of a browser's cookie, to a principal, remembered for a moment.

Every request of every rank passes here, so a token found in the database is remembered for one second: a revoked token
lives at most that much longer on other replicas, and not at all on the one that revoked it. At most 10,000 are
remembered; then all are forgotten and asked for again. Unknown tokens are not remembered. Sign-ins likewise, apart: a
cookie's secret is no bearer token, nor is a token a cookie's secret.

Uses are gathered in memory and written together by `write_uses`, each token's at most once a minute; a process that is
killed loses the last minute of them, which is all they are worth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from shardkeep_service.access import repository
from shardkeep_service.access.browser_cookie import secret_hash
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.secrets import token_hash
from shardkeep_service.access.service import check_token_text, principal_of
from shardkeep_service.access.sign_ins import sign_in_of, touch_sign_ins
from shardkeep_service.database.database import Database
from shardkeep_service.moments import MICROS_PER_SECOND

REMEMBER_SECONDS: Final = 1.0
WRITE_USES_SECONDS: Final = 60.0
_REMEMBERED_LIMIT: Final = 10_000


class Gate:
    """Recognises tokens and sign-ins. Thread-safe; one per application."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._tokens = _Remembered(clock)
        self._sign_ins = _Remembered(clock)

    def remembered(self, text: str) -> Principal | None:
        """The principal of a token seen within the last second; blocks on nothing."""
        return self._tokens.find(token_hash(text))

    def recognise(self, text: str) -> Principal:
        """The principal, from the database; refuses `token_invalid` and `token_expired`."""
        check_token_text(text)
        since = self._tokens.forgotten
        with self._database.read() as session:
            now = self._database.now(session)
            principal = principal_of(session, text, now=now)
        seconds = _seconds_to_remember(principal.expires_at, now)
        self._tokens.keep(token_hash(text), principal, seconds, since=since)
        self._tokens.note_use(principal.token_id, now)
        return principal

    def remembered_sign_in(self, secret: str) -> Principal | None:
        """The principal of a sign-in seen within the last second; blocks on nothing."""
        return self._sign_ins.find(secret_hash(secret))

    def recognise_sign_in(self, secret: str) -> Principal:
        """The principal of a sign-in, from the database; refuses `sign_in_ended`."""
        since = self._sign_ins.forgotten
        with self._database.read() as session:
            now = self._database.now(session)
            row, _, principal = sign_in_of(session, secret, now=now)
            expires_at = row.expires_at
        self._sign_ins.keep(secret_hash(secret), principal, _seconds_to_remember(expires_at, now), since=since)
        self._sign_ins.note_use(secret_hash(secret), now)
        self._tokens.note_use(principal.token_id, now)
        return principal

    def forget(self) -> None:
        """Forgets everyone, so that a revocation or the end of a sign-in counts at once."""
        self._tokens.forget()
        self._sign_ins.forget()

    def write_uses(self) -> None:
        """Writes the uses gathered since the last call, in one transaction. Called every WRITE_USES_SECONDS."""
        tokens, sign_ins = self._tokens.take_uses(), self._sign_ins.take_uses()
        if tokens:
            with self._database.write() as session:
                repository.touch(session, tokens)
                touch_sign_ins(session, sign_ins)


class _Remembered:
    """Principals by the hash of what they showed, for a moment; and uses that are not written yet."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._found: dict[str, tuple[Principal, float]] = {}
        self._uses: dict[str, int] = {}
        self._forgotten = 0

    @property
    def forgotten(self) -> int:
        """How often everyone was forgotten; to be asked before the database is."""
        return self._forgotten

    def find(self, hashed: str) -> Principal | None:
        with self._lock:
            found = self._found.get(hashed)
        return None if found is None or self._clock() > found[1] else found[0]

    def keep(self, hashed: str, principal: Principal, seconds: float, *, since: int) -> None:
        """Not if everyone was forgotten after `since`: what was read before may be what has just ended."""
        with self._lock:
            if self._forgotten != since:
                return
            if len(self._found) >= _REMEMBERED_LIMIT:
                self._found.clear()
            self._found[hashed] = (principal, self._clock() + seconds)

    def forget(self) -> None:
        with self._lock:
            self._found.clear()
            self._forgotten += 1

    def note_use(self, name: str, now: int) -> None:
        with self._lock:
            self._uses[name] = now

    def take_uses(self) -> dict[str, int]:
        with self._lock:
            uses, self._uses = self._uses, {}
        return uses


def _seconds_to_remember(expires_at: int | None, now: int) -> float:
    """Not beyond its expiry by database time: the clock of this machine may be wrong."""
    if expires_at is None:
        return REMEMBER_SECONDS
    return min(REMEMBER_SECONDS, (expires_at - now) / MICROS_PER_SECOND)
