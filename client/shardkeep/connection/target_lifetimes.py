"""When a transfer target must be asked for again, also where the clocks of client and store disagree."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from shardkeep.protocol.messages import Target

_EXPIRY_MARGIN: Final = timedelta(seconds=30)
_YOUNG_SECONDS: Final = 20.0
"""A target this young is used whatever the clock says: one that runs ahead would have all of them expired."""


def utc_now() -> datetime:
    """The time by this machine's clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class HeldTarget:
    """A target and when it was received, on the monotonic clock."""

    target: Target
    received: float = field(default_factory=time.monotonic)

    def is_expiring(
        self, *, monotonic: Callable[[], float] = time.monotonic, now: Callable[[], datetime] = utc_now
    ) -> bool:
        """Whether it is about to expire by this machine's clock, and not just received."""
        expires_at = self.target.expires_at
        if expires_at is None or self.is_young(monotonic=monotonic):
            return False
        return expires_at - _EXPIRY_MARGIN < now()

    def may_have_expired(self, *, monotonic: Callable[[], float] = time.monotonic) -> bool:
        """Whether a refusal may mean that it has expired: it expires at all and was not just received."""
        return self.target.expires_at is not None and not self.is_young(monotonic=monotonic)

    def is_young(self, *, monotonic: Callable[[], float] = time.monotonic) -> bool:
        """Whether it was just received."""
        return monotonic() - self.received < _YOUNG_SECONDS
