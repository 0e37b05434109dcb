"""A cache of values that never change, within a bound of bytes: each is made once, however many want it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Thread-safe. While one thread makes a value, others that want the same wait for it."""

    def __init__(self, size_of: Callable[[Value], int], *, limit_bytes: int) -> None:
        self._size_of = size_of
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._held_bytes = 0
        self._making: dict[Key, threading.Lock] = {}

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value, from `make` if it is not kept. What that raises is raised, and the next call tries again."""
        found = self.held(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                found = self.held(key)
                if found is None:
                    found = make()
                    self.put(key, found)
        finally:
            with self._lock:
                self._making.pop(key, None)
        return found

    def put(self, key: Key, value: Value) -> None:
        """Keeps a value, and lets the longest unused go."""
        size_bytes = self._size_of(value)
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = (value, size_bytes)
            self._held_bytes += size_bytes
            while self._held_bytes > self._limit_bytes and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self._held_bytes -= freed

    def held(self, key: Key) -> Value | None:
        """The value if it is kept; it counts as used."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def clear(self) -> None:
        """Lets all go."""
        with self._lock:
            self._kept.clear()
            self._held_bytes = 0

    @property
    def keys(self) -> list[Key]:
        """What is kept, the longest unused first."""
        with self._lock:
            return list(self._kept)

    @property
    def held_bytes(self) -> int:
        """What is kept now takes so much."""
        return self._held_bytes
