"""Decoded indexes, kept by object key within a bound of bytes; an index never changes, so nothing is ever stale."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.index import Index, decode_index
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.checkpoints.bounded_cache import BoundedCache

DEFAULT_LIMIT_BYTES: Final = 1 << 30
NAME_BYTES: Final = 100
"""A guess at what one tensor name costs in memory."""


class IndexCache:
    """Thread-safe. While one thread loads an index, others that want it wait for that load."""

    def __init__(self, blob_store: BlobStore, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._blob_store = blob_store
        self._kept = BoundedCache[str, Index](memory_bytes, limit_bytes=limit_bytes)

    def get(self, key: str) -> Index:
        """The index stored under `key`; BlobMissing or FormatError when it cannot be read back."""
        return self._kept.get(key, lambda: self._load(key))

    def put(self, key: str, index: Index) -> None:
        """Keeps an index that is stored under `key`, and lets the longest unused go."""
        self._kept.put(key, index)

    def clear(self) -> None:
        """Lets all go."""
        self._kept.clear()

    @property
    def keys(self) -> list[str]:
        """The keys of what is kept, the longest unused first."""
        return self._kept.keys

    @property
    def held_bytes(self) -> int:
        """What is kept now."""
        return self._kept.held_bytes

    def _load(self, key: str) -> Index:
        size_bytes = self._blob_store.size(key)
        if size_bytes is None:
            raise BlobMissing(f"no index is stored under {key}")
        body = memoryview(bytearray(size_bytes))
        self._blob_store.read_into(key, 0, body)
        try:
            return decode_index(body)
        except FormatError as exc:
            raise FormatError(f"the index at {key} is damaged: {exc}") from exc


def memory_bytes(index: Index) -> int:
    """About what an index takes in memory: its columns and its names."""
    return column_bytes(index) + NAME_BYTES * len(index.tensor_names)


def column_bytes(value: Any) -> int:
    """The bytes of all arrays in a dataclass and in the dataclasses inside it."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if dataclasses.is_dataclass(value):
        return sum(column_bytes(getattr(value, member.name)) for member in dataclasses.fields(value))
    return 0
