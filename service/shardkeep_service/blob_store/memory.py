"""A blob store in memory: for tests, and the simplest reading of the contract."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from shardkeep_service.blob_store.blob_store import BlobInfo
from shardkeep_service.blob_store.errors import BlobExists, BlobMissing
from shardkeep_service.blob_store.keys import check_key, check_keys, check_prefix


class MemoryBlobStore:
    """Implements `BlobStore`; nothing outlives the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}

    def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:  # noqa: ARG002  (the contract's)
        """See BlobStore."""
        check_key(key)
        data = bytes(body)
        with self._lock:
            if self._objects.setdefault(key, data) != data:
                raise BlobExists(f"{key} holds other bytes")

    def read_into(self, key: str, offset: int, out: memoryview) -> None:
        """See BlobStore."""
        data = self._object(key)
        if offset + len(out) > len(data):
            raise BlobMissing(f"{key} has {len(data)} bytes, needed {offset} to {offset + len(out)}")
        out[:] = data[offset : offset + len(out)]

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        """See BlobStore."""
        data = self._object(key)
        if offset + length > len(data):
            raise BlobMissing(f"{key} has {len(data)} bytes, needed {offset} to {offset + length}")
        view = memoryview(data)[offset : offset + length]
        return (view[start : start + piece_bytes] for start in range(0, length, piece_bytes))

    def size(self, key: str) -> int | None:
        """See BlobStore."""
        check_key(key)
        with self._lock:
            data = self._objects.get(key)
        return None if data is None else len(data)

    def delete(self, keys: Sequence[str]) -> None:
        """See BlobStore."""
        check_keys(keys)
        with self._lock:
            for key in keys:
                self._objects.pop(key, None)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore."""
        check_prefix(prefix)
        with self._lock:
            items = [(key, len(data)) for key, data in self._objects.items()]
        found = sorted((key, size) for key, size in items if key.startswith(prefix) and key > after)
        return (BlobInfo(key, size) for key, size in found)

    def _object(self, key: str) -> bytes:
        check_key(key)
        with self._lock:
            data = self._objects.get(key)
        if data is None:
            raise BlobMissing(f"there is no {key}")
        return data
