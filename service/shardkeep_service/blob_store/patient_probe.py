"""Asking what a store can do without holding up everybody while it does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from shardkeep_service.blob_store.errors import BlobStoreError, BlobStoreUnavailable
from shardkeep_service.blob_store.presigner import StoreAbilities

_WAIT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 10.0


class PatientProbe:
    """The abilities of a store, asked for by one caller at a time. Thread-safe.

    The others wait a few seconds for its answer, and for a while after it failed nobody asks: requests that could do
    without (a negotiation can let clients stream) must not use up the threads that renew sessions.
    """

    def __init__(self, find: Callable[[], StoreAbilities], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._asking = threading.Lock()
        self._known: StoreAbilities | None = None
        self._not_before = 0.0

    def __call__(self) -> StoreAbilities:
        """What the store can do; BlobStoreError while that is not known."""
        if self._known is not None:
            return self._known
        if not self._asking.acquire(timeout=_WAIT_SECONDS):
            raise BlobStoreUnavailable("the object store has not answered its probe yet")
        try:
            return self._known or self._ask()
        finally:
            self._asking.release()

    def _ask(self) -> StoreAbilities:
        if self._clock() < self._not_before:
            raise BlobStoreUnavailable("the object store did not answer its probe a moment ago")
        try:
            self._known = self._find()
        except BlobStoreError:
            self._not_before = self._clock() + _PAUSE_SECONDS
            raise
        return self._known
