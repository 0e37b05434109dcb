"""A blob store that counts: how long each operation took, how it ended, and the bytes it moved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from shardkeep_service.blob_store.blob_store import BlobInfo, BlobStore, FileBacked
from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreError,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
)
from shardkeep_service.observability.metrics import Metrics

Answer = TypeVar("Answer")


def measured(store: BlobStore, metrics: Metrics) -> BlobStore:
    """The store with its operations counted; one whose objects are files stays one."""
    if isinstance(store, FileBacked):
        return MeasuredFileStore(store, store, metrics)
    return MeasuredBlobStore(store, metrics)


class MeasuredBlobStore:
    """Implements `BlobStore` around another."""

    def __init__(self, store: BlobStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:
        """See BlobStore."""
        self._timed("put", lambda: self._store.put(key, body, crc64=crc64), size_bytes=len(body))

    def read_into(self, key: str, offset: int, out: memoryview) -> None:
        """See BlobStore."""
        self._timed("read_into", lambda: self._store.read_into(key, offset, out), size_bytes=len(out))

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        """See BlobStore. Counts the time that the pieces took, not what was done with them in between."""
        pieces = self._store.stream(key, offset, length, piece_bytes=piece_bytes)
        seconds, result = 0.0, "ok"
        try:
            while True:
                started = time.perf_counter()
                try:
                    piece = next(pieces, None)
                finally:
                    seconds += time.perf_counter() - started
                if piece is None:
                    return
                self._metrics.store_bytes.labels("stream").inc(len(piece))
                yield piece
        except BlobStoreError as error:
            result = result_of(error)
            raise
        finally:
            self._metrics.store_seconds.labels("stream", result).observe(seconds)

    def size(self, key: str) -> int | None:
        """See BlobStore."""
        return self._timed("size", lambda: self._store.size(key))

    def delete(self, keys: Sequence[str]) -> None:
        """See BlobStore."""
        self._timed("delete", lambda: self._store.delete(keys))

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore. A list is one operation that ends with its last object, as slow as its reader: not timed."""
        return self._store.list(prefix, after=after)

    def _timed(self, operation: str, act: Callable[[], Answer], *, size_bytes: int = 0) -> Answer:
        started, result = time.perf_counter(), "ok"
        try:
            answer = act()
        except BlobStoreError as error:
            result = result_of(error)
            raise
        finally:
            self._metrics.store_seconds.labels(operation, result).observe(time.perf_counter() - started)
        if size_bytes:
            self._metrics.store_bytes.labels(operation).inc(size_bytes)
        return answer


class MeasuredFileStore(MeasuredBlobStore):
    """The same for a store whose objects are files."""

    def __init__(self, store: BlobStore, files: FileBacked, metrics: Metrics) -> None:
        super().__init__(store, metrics)
        self._files = files

    def opened(self, key: str, *, reaching: int) -> AbstractContextManager[int]:
        """See FileBacked. The bytes go past us: the count is of those the reader may take."""
        return self._timed("open", lambda: self._files.opened(key, reaching=reaching))


def result_of(error: BlobStoreError) -> str:
    """The kind of error, as a label."""
    match error:
        case BlobMissing():
            return "missing"
        case BlobExists():
            return "exists"
        case BlobStoreFull():
            return "full"
        case BlobStoreRefused():
            return "refused"
        case BlobStoreUnavailable():
            return "throttled" if error.throttled else "unavailable"
        case _:
            return "error"
