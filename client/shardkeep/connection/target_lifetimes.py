"""When a transfer target must be asked for again, also where the clocks of client and store disagree."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from shardkeep.protocol.messages import Target

_EXPIRY_MARGIN: Final = timedelta(seconds=30)
_FRESH_SECONDS: Final = 0.5
_YOUNG_SECONDS: Final = 20.0
"""A target this young is used whatever the clock says: one that runs ahead would have all of them expired."""


def is_on_service(target: Target) -> bool:
    """Whether its bytes go through the service, and not to the object store itself."""
    return target.url.startswith("/")


def utc_now() -> datetime:
    """The time by this machine's clock."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class HeldTarget:
    """A target, when it was received, on the monotonic clock, and whether one of the object store was asked for."""

    target: Target
    received: float = field(default_factory=time.monotonic)
    asked_direct: bool = True

    def is_expiring(
        self, *, monotonic: Callable[[], float] = time.monotonic, now: Callable[[], datetime] = utc_now
    ) -> bool:
        """Whether it is about to expire by this machine's clock, and not just received."""
        expires_at = self.target.expires_at
        if expires_at is None or self.is_young(monotonic=monotonic):
            return False
        return expires_at - _EXPIRY_MARGIN < now()

    @property
    def is_direct(self) -> bool:
        """Whether it is one of the object store."""
        return not is_on_service(self.target)

    @property
    def is_last_resort(self) -> bool:
        """Whether it is of the object store although that was not asked for: there is no other way."""
        return self.is_direct and not self.asked_direct

    def is_wanted(self, *, direct: bool) -> bool:
        """Whether it may still be used where the object store is (not) given up."""
        return direct or not self.is_direct or self.is_last_resort

    def was_fresh(self, used: float) -> bool:
        """Whether it had just been received at that monotonic time: if it was refused, its age is not the reason."""
        return used - self.received < _FRESH_SECONDS

    def is_young(self, *, monotonic: Callable[[], float] = time.monotonic) -> bool:
        """Whether it was just received."""
        return monotonic() - self.received < _YOUNG_SECONDS
