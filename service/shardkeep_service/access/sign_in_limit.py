"""The bound on failed sign-ins: of one address and of all together.

A token has 160 random bits, so nobody guesses one; the bound keeps guessing from costing the database more than a
little. An attempt takes its place first and gives it back when it succeeds, so that many at once pass no more than one
by one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

ADDRESS_FAILURES: Final = 10
ADDRESS_SECONDS: Final = 6.0
"""An address has so many failures at once, and another after each so many seconds."""
ALL_FAILURES: Final = 1_000
ALL_SECONDS: Final = 0.02
"""All together may cost the database 50 look-ups a second, which it does not feel. That is far above what an address
has, for whoever uses it up keeps everybody from signing in: it takes three hundred addresses that fail steadily.
"""
ADDRESSES_LIMIT: Final = 10_000
"""So many addresses are remembered; the one that tried longest ago is forgotten first."""

_IPV6_NETWORK_BITS: Final = 64
"""Whoever has one IPv6 address has this many more."""


class SignInLimit:
    """Counts attempts. Thread-safe; one per application, so replicas count apart."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._all = _Allowance(ALL_FAILURES, ALL_SECONDS, now=clock())
        self._addresses: dict[str, _Allowance] = {}
        """The one that tried last is last."""

    @contextlib.contextmanager
    def attempt(self, address: str, *, asks_database: bool) -> Iterator[None]:
        """Around one attempt, which has failed if a Refusal leaves it; Refusal `too_many_sign_ins` before it begins.

        One that does not ask the database counts for its address only.
        """
        source, refused = _source(address), False
        self._take(source, asks_database=asks_database)
        try:
            yield
        except Refusal:
            refused = True
            raise
        finally:
            if not refused:
                self._give_back(source, asked_database=asks_database)

    def _take(self, source: str, *, asks_database: bool) -> None:
        now = self._clock()
        with self._lock:
            own = self._addresses.pop(source, None) or _Allowance(ADDRESS_FAILURES, ADDRESS_SECONDS, now=now)
            self._addresses[source] = own
            if len(self._addresses) > ADDRESSES_LIMIT:
                del self._addresses[next(iter(self._addresses))]
            allowances = (own, self._all) if asks_database else (own,)
            wait = max(allowance.seconds_until_free(now) for allowance in allowances)
            if not wait:
                for allowance in allowances:
                    allowance.left -= 1
                return
        raise Refusal(
            ErrorCode.TOO_MANY_SIGN_INS,
            f"too many sign-ins failed; the next one is taken in {math.ceil(wait)} s",
            retry_after_seconds=wait,
        )

    def _give_back(self, source: str, *, asked_database: bool) -> None:
        with self._lock:
            if asked_database:
                self._all.give_back()
            own = self._addresses.get(source)
            if own is not None:
                own.give_back()

    @property
    def remembered_addresses(self) -> int:
        """How many addresses are remembered."""
        return len(self._addresses)


class _Allowance:
    """A bucket that fills by one each `seconds`, up to `most`."""

    __slots__ = ("_at", "_most", "_seconds", "left")

    def __init__(self, most: int, seconds: float, *, now: float) -> None:
        self._most = most
        self._seconds = seconds
        self._at = now
        self.left = float(most)

    def seconds_until_free(self, now: float) -> float:
        self.left = min(self._most, self.left + (now - self._at) / self._seconds)
        self._at = now
        return max(0.0, (1 - self.left) * self._seconds)

    def give_back(self) -> None:
        self.left = min(self._most, self.left + 1)


def _source(address: str) -> str:
    """What counts as one: an IPv4 address, or the network of an IPv6 one; anything else is one unknown."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), _IPV6_NETWORK_BITS), strict=False))
