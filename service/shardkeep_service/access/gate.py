"""The gate: from an Authorization header to a principal, remembered for a moment.

Every request of every rank passes here, so a token found in the database is remembered for one second: a revoked token
lives at most that much longer on other replicas, and not at all on the one that revoked it. At most 10,000 are
remembered; then all are forgotten and asked for again. Unknown tokens are not remembered.

Uses are gathered in memory and written together by `write_uses`, each token's at most once a minute; a process that is
killed loses the last minute of them, which is all they are worth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access import repository
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.secrets import token_hash
from shardkeep_service.access.service import principal_of
from shardkeep_service.database.database import Database
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import MICROS_PER_SECOND

REMEMBER_SECONDS: Final = 1.0
WRITE_USES_SECONDS: Final = 60.0
_REMEMBERED_LIMIT: Final = 10_000
_LONGEST_TEXT: Final = 200


class Gate:
    """Recognises tokens. Thread-safe; one per application."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._remembered: dict[str, tuple[Principal, float]] = {}
        self._uses: dict[str, int] = {}
        """Token id to database time: uses that are not written yet."""

    def remembered(self, text: str) -> Principal | None:
        """The principal of a token seen within the last second; blocks on nothing."""
        with self._lock:
            found = self._remembered.get(token_hash(text))
        return None if found is None or self._clock() > found[1] else found[0]

    def recognise(self, text: str) -> Principal:
        """The principal, from the database; refuses `token_invalid` and `token_expired`."""
        with self._database.read() as session:
            now = self._database.now(session)
            principal = principal_of(session, text, now=now)
        with self._lock:
            if len(self._remembered) >= _REMEMBERED_LIMIT:
                self._remembered.clear()
            self._remembered[token_hash(text)] = (principal, self._clock() + _seconds_to_remember(principal, now))
            self._uses[principal.token_id] = now
        return principal

    def forget(self) -> None:
        """Forgets every token, so that a revocation counts at once."""
        with self._lock:
            self._remembered.clear()

    def write_uses(self) -> None:
        """Writes the uses gathered since the last call, in one transaction. Called every WRITE_USES_SECONDS."""
        with self._lock:
            uses, self._uses = self._uses, {}
        if uses:
            with self._database.write() as session:
                repository.touch(session, uses)


def _seconds_to_remember(principal: Principal, now: int) -> float:
    """Not beyond its expiry by database time: the clock of this machine may be wrong."""
    if principal.expires_at is None:
        return REMEMBER_SECONDS
    return min(REMEMBER_SECONDS, (principal.expires_at - now) / MICROS_PER_SECOND)


def bearer_token(authorization: str | None) -> str:
    """The token in an Authorization header; `token_missing` refuses its absence and any other scheme."""
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise Refusal(ErrorCode.TOKEN_MISSING, "send the token as `Authorization: Bearer shardkeep_...`")
    return text.strip()[:_LONGEST_TEXT]
