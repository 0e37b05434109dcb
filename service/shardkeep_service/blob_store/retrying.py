"""A blob store that tries again what may pass by itself: the one place where requests to a store are repeated.

Only `BlobStoreUnavailable` is tried again. Every operation may be repeated: a put whose answer was lost finds its own
bytes, a delete finds nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from shardkeep_service.blob_store.blob_store import BlobInfo, BlobStore
from shardkeep_service.blob_store.errors import BlobStoreUnavailable

Answer = TypeVar("Answer")
_THROTTLED_SECONDS: Final = 0.5
"""A store that asks to slow down is left alone longer than one that failed."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Full jitter over doubling ceilings, inside a window that begins with the first failure in a row."""

    window_seconds: float = 20.0
    first_delay_seconds: float = 0.1
    longest_delay_seconds: float = 5.0


class RetryingBlobStore:
    """Implements `BlobStore` around another. `on_retry` hears the operation's name before each further try."""

    def __init__(
        self,
        store: BlobStore,
        policy: RetryPolicy | None = None,
        *,
        on_retry: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._policy = policy or RetryPolicy()
        self._on_retry = on_retry
        self._clock = clock
        self._sleep = sleep
        self._draw = draw

    def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:
        """See BlobStore."""
        self._tried("put", lambda: self._store.put(key, body, crc64=crc64))

    def read_into(self, key: str, offset: int, out: memoryview) -> None:
        """See BlobStore."""
        self._tried("read_into", lambda: self._store.read_into(key, offset, out))

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        """See BlobStore. Goes on where a broken answer ended."""
        failures, done = self._failures("stream"), 0
        while True:
            try:
                for piece in self._store.stream(key, offset + done, length - done, piece_bytes=piece_bytes):
                    done += len(piece)
                    failures.forget()
                    yield piece
            except BlobStoreUnavailable as error:
                failures.pause_after(error)
            else:
                return

    def size(self, key: str) -> int | None:
        """See BlobStore."""
        return self._tried("size", lambda: self._store.size(key))

    def delete(self, keys: Sequence[str]) -> None:
        """See BlobStore."""
        self._tried("delete", lambda: self._store.delete(keys))

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore. Goes on after the last object that came before a failure."""
        failures = self._failures("list")
        while True:
            try:
                for info in self._store.list(prefix, after=after):
                    after = info.key
                    failures.forget()
                    yield info
            except BlobStoreUnavailable as error:
                failures.pause_after(error)
            else:
                return

    def _tried(self, operation: str, act: Callable[[], Answer]) -> Answer:
        failures = self._failures(operation)
        while True:
            try:
                return act()
            except BlobStoreUnavailable as error:
                failures.pause_after(error)

    def _failures(self, operation: str) -> _Failures:
        return _Failures(operation, self._policy, self._on_retry, self._clock, self._sleep, self._draw)


@dataclass(slots=True)
class _Failures:
    """The failures in a row of one operation."""

    operation: str
    policy: RetryPolicy
    on_retry: Callable[[str], None]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    draw: Callable[[], float]
    first_at: float | None = None
    count: int = 0

    def forget(self) -> None:
        """Something came: what failed before no longer counts."""
        self.first_at, self.count = None, 0

    def pause_after(self, error: BlobStoreUnavailable) -> None:
        """Waits before the next try; raises when the window leaves no room for one."""
        now = self.clock()
        if self.first_at is None:
            self.first_at = now
        left = self.first_at + self.policy.window_seconds - now
        first = max(self.policy.first_delay_seconds, _THROTTLED_SECONDS if error.throttled else 0.0)
        ceiling = min(self.policy.longest_delay_seconds, first * 2.0 ** min(self.count, 16))
        self.count += 1
        asked = error.retry_after_seconds or 0.0
        if left <= 0 or asked > left:
            raise self._gave_up(error) from error
        self.on_retry(self.operation)
        self.sleep(min(asked + ceiling * self.draw(), left))

    def _gave_up(self, error: BlobStoreUnavailable) -> BlobStoreUnavailable:
        """The same error with how often it was tried, and with the time that the client should wait."""
        tries = f"{error}; gave up after {self.count} tries in {self.policy.window_seconds:g} s"
        wait = error.retry_after_seconds
        if wait is None and error.throttled:
            wait = self.policy.longest_delay_seconds
        return BlobStoreUnavailable(tries, retry_after_seconds=wait, throttled=error.throttled, damaged=error.damaged)
