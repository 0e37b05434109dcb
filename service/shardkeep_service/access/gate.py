"""The gate: from an Authorization header to a principal, remembered for a moment.

Every request of every rank passes here, so a token found in the database is remembered for one second: a revoked token
may live that much longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access import repository
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.secrets import token_hash
from shardkeep_service.access.service import check_not_expired, principal_of
from shardkeep_service.database.database import Database
from shardkeep_service.errors import Refusal

REMEMBER_SECONDS = 1.0
TOUCH_SECONDS = 60.0
_REMEMBERED_LIMIT = 10_000


class Gate:
    """Recognises tokens. Thread-safe; one per application."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._remembered: dict[str, tuple[Principal, float]] = {}
        self._touched: dict[str, float] = {}

    def remembered(self, text: str) -> Principal | None:
        """The principal of a token seen within the last second; blocks on nothing."""
        with self._lock:
            found = self._remembered.get(token_hash(text))
        if found is None or self._clock() - found[1] > REMEMBER_SECONDS:
            return None
        check_not_expired(found[0], now=time.time_ns() // 1000)
        return found[0]

    def recognise(self, text: str) -> Principal:
        """The principal, from the database; refuses `token_invalid` and `token_expired`. Notes a use once a minute."""
        with self._database.read() as session:
            now = self._database.now(session)
            principal = principal_of(session, text, now=now)
        self._note_use(principal, now)
        self._remember(text, principal)
        return principal

    def forget(self) -> None:
        """Forgets every token, so that a revocation counts at once."""
        with self._lock:
            self._remembered.clear()

    def _remember(self, text: str, principal: Principal) -> None:
        with self._lock:
            if len(self._remembered) >= _REMEMBERED_LIMIT:
                self._remembered.clear()
            self._remembered[token_hash(text)] = (principal, self._clock())

    def _note_use(self, principal: Principal, now: int) -> None:
        with self._lock:
            last = self._touched.get(principal.token_id)
            if last is not None and self._clock() - last < TOUCH_SECONDS:
                return
            self._touched[principal.token_id] = self._clock()
        with self._database.write() as session:
            repository.touch(session, principal.token_id, now, not_since=now - int(TOUCH_SECONDS * 1e6))


def bearer_token(authorization: str | None) -> str:
    """The token in an Authorization header; `token_missing` refuses its absence and any other scheme."""
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise Refusal(ErrorCode.TOKEN_MISSING, "send the token as `Authorization: Bearer shardkeep_...`")
    return text.strip()
