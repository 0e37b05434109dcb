"""Decoded indexes, kept by object key within a bound of bytes; an index never changes, so nothing is ever stale."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from typing import Any, Final

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.index import Index, decode_index
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.errors import BlobMissing

DEFAULT_LIMIT_BYTES: Final = 1 << 30
_NAME_BYTES: Final = 100
"""A guess at what one tensor name costs in memory."""


class IndexCache:
    """Thread-safe. While one thread loads an index, others that want it wait for that load."""

    def __init__(self, blob_store: BlobStore, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._blob_store = blob_store
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str, tuple[Index, int]] = OrderedDict()
        self._held_bytes = 0
        self._loading: dict[str, threading.Lock] = {}

    def get(self, key: str) -> Index:
        """The index stored under `key`; BlobMissing or FormatError when it cannot be read back."""
        index = self._held(key)
        if index is not None:
            return index
        with self._lock:
            loading = self._loading.setdefault(key, threading.Lock())
        with loading:
            index = self._held(key)
            if index is None:
                index = self._load(key)
                self.put(key, index)
        with self._lock:
            self._loading.pop(key, None)
        return index

    def put(self, key: str, index: Index) -> None:
        """Keeps an index that is stored under `key`, and lets the longest unused go."""
        size_bytes = memory_bytes(index)
        with self._lock:
            if key in self._indexes:
                return
            self._indexes[key] = (index, size_bytes)
            self._held_bytes += size_bytes
            while self._held_bytes > self._limit_bytes and len(self._indexes) > 1:
                _, (_, freed) = self._indexes.popitem(last=False)
                self._held_bytes -= freed

    @property
    def held_bytes(self) -> int:
        """What is kept now."""
        return self._held_bytes

    def _held(self, key: str) -> Index | None:
        with self._lock:
            found = self._indexes.get(key)
            if found is None:
                return None
            self._indexes.move_to_end(key)
            return found[0]

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
    return _column_bytes(index) + _NAME_BYTES * len(index.tensor_names)


def _column_bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if dataclasses.is_dataclass(value):
        return sum(_column_bytes(getattr(value, member.name)) for member in dataclasses.fields(value))
    return 0
