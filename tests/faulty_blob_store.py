"""A blob store that fails as it is told: the faults of object stores, where a test wants them, around a real store."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardkeep_service.blob_store.blob_store import BlobInfo, BlobStore
from shardkeep_service.blob_store.errors import BlobStoreUnavailable

Listing = Callable[[list[BlobInfo]], list[BlobInfo]]


@dataclass(slots=True)
class BlobFault:
    """What happens to the next `times` operations `operation` on keys that match `pattern`.

    First it stalls for `stall_seconds`. Then `error` is raised: before the operation, or `after` it was done (an answer
    that was lost). `short_bytes` cuts a read after so many bytes; `listing` changes what a list gives.
    """

    operation: str
    pattern: str = ""
    times: int = 1
    error: Exception | None = None
    after: bool = False
    stall_seconds: float = 0.0
    short_bytes: int | None = None
    listing: Listing | None = None
    met: int = 0
    """How often it happened."""


class FaultyBlobStore:
    """Implements `BlobStore` around another. Thread-safe. `calls` counts the operations by name."""

    def __init__(self, store: BlobStore) -> None:
        self.store = store
        self.calls: dict[str, int] = {}
        self._lock = threading.Lock()
        self._faults: list[BlobFault] = []

    def fail(self, operation: str, error: Exception | None = None, **how: object) -> BlobFault:
        """Adds a fault, see BlobFault; `operation` is a method's name."""
        fault = BlobFault(operation, error=error, **how)  # type: ignore[arg-type]  # BlobFault's own fields
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Takes all faults away."""
        with self._lock:
            self._faults.clear()

    def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:
        fault = self._meet("put", key)
        self.store.put(key, body, crc64=crc64)
        _raise_late(fault)

    def read_into(self, key: str, offset: int, out: memoryview) -> None:
        fault = self._meet("read_into", key)
        if fault is not None and fault.short_bytes is not None:
            self.store.read_into(key, offset, out[: fault.short_bytes])
            raise BlobStoreUnavailable(f"{key}: cut after {fault.short_bytes} bytes")
        self.store.read_into(key, offset, out)
        _raise_late(fault)

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        fault, given = self._meet("stream", key), 0
        for piece in self.store.stream(key, offset, length, piece_bytes=piece_bytes):
            if fault is not None and fault.short_bytes is not None and given + len(piece) > fault.short_bytes:
                yield piece[: fault.short_bytes - given]
                raise BlobStoreUnavailable(f"{key}: cut after {fault.short_bytes} bytes")
            given += len(piece)
            yield piece
        _raise_late(fault)

    def size(self, key: str) -> int | None:
        fault = self._meet("size", key)
        found = self.store.size(key)
        _raise_late(fault)
        return found

    def delete(self, keys: Sequence[str]) -> None:
        fault = self._meet("delete", " ".join(keys))
        self.store.delete(keys)
        _raise_late(fault)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        fault = self._meet("list", prefix)
        found = self.store.list(prefix, after=after)
        if fault is not None and fault.listing is not None:
            found = iter(fault.listing(list(found)))
        yield from found
        _raise_late(fault)

    def _meet(self, operation: str, key: str) -> BlobFault | None:
        """Counts the operation, and begins what its fault does."""
        with self._lock:
            self.calls[operation] = self.calls.get(operation, 0) + 1
            fault = next((item for item in self._faults if _applies(item, operation, key)), None)
            if fault is not None:
                fault.times -= 1
                fault.met += 1
        if fault is None:
            return None
        time.sleep(fault.stall_seconds)
        if fault.error is not None and not fault.after:
            raise fault.error
        return fault


def _applies(fault: BlobFault, operation: str, key: str) -> bool:
    return fault.times > 0 and fault.operation == operation and re.search(fault.pattern, key) is not None


def _raise_late(fault: BlobFault | None) -> None:
    if fault is not None and fault.error is not None and fault.after:
        raise fault.error
