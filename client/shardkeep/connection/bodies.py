"""Request bodies made of several buffers, sent without joining them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

SMALL_PART_BYTES: Final = 64 * 1024
"""Parts below this are joined: a system call a part costs more than the copy."""


class PartsBody:
    """Buffers sent one after another; can be iterated again for a retry."""

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self._parts = tuple(part.cast("B") for part in parts if part.nbytes)
        self.size_bytes = sum(part.nbytes for part in self._parts)

    def __iter__(self) -> Iterator[memoryview]:
        small: list[memoryview] = []
        small_bytes = 0
        for part in self._parts:
            if part.nbytes < SMALL_PART_BYTES:
                small.append(part)
                small_bytes += part.nbytes
            if small and (part.nbytes >= SMALL_PART_BYTES or small_bytes >= SMALL_PART_BYTES):
                yield memoryview(b"".join(small))
                small, small_bytes = [], 0
            if part.nbytes >= SMALL_PART_BYTES:
                yield part
        if small:
            yield memoryview(b"".join(small))
