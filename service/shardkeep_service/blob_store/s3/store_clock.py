"""The time to sign with: this machine's, corrected once the store has said that it is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final

TOLERATED_SKEW_SECONDS: Final = 240.0
"""Stores refuse signatures that are 15 minutes off; presigned ones count their lifetime from the signed moment."""


class StoreClock:
    """Thread-safe: one float is all that changes."""

    def __init__(self, local: Callable[[], float] = time.time) -> None:
        self._local = local
        self._correction = 0.0

    def now(self) -> float:
        """Seconds since 1970 UTC, as the store counts them."""
        return self._local() + self._correction

    @property
    def correction_seconds(self) -> float:
        """How far this machine's clock was found behind the store's; 0 until `follow` changed it."""
        return self._correction

    def skew_of(self, date_header: str | None) -> float | None:
        """How far the store's clock is ahead of ours (without correction), None when the header says nothing."""
        if not date_header:
            return None
        try:
            return parsedate_to_datetime(date_header).timestamp() - self._local()
        except (ValueError, TypeError):
            return None

    def follow(self, date_header: str | None) -> bool:
        """Takes the store's time where ours is too far off; says whether signing again may help."""
        skew = self.skew_of(date_header)
        if skew is None or abs(skew - self._correction) <= TOLERATED_SKEW_SECONDS:
            return False
        self._correction = skew if abs(skew) > TOLERATED_SKEW_SECONDS else 0.0
        return True
