"""The contract of a blob store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One stored object."""

    key: str
    size_bytes: int


class BlobStore(Protocol):
    """Bytes under keys, written once.

    Keys are made by the service, never by a client: parts of `[a-z0-9_.-]` joined by `/`; anything else is ValueError.
    No key is what another has before one of its slashes.
    Every method is thread-safe, blocks, and retries nothing (retry, metrics and faults are wrappers).

    Errors: `BlobMissing` when the key is absent; `BlobExists` when `put` meets a key with other content;
    `BlobStoreFull` when there is no space; `BlobStoreRefused` when an operator must act (permissions, a bucket that
    does not exist); `BlobStoreUnavailable` for anything that may pass by itself. Nothing else leaves an implementation.
    """

    def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:
        """Stores `body` durably: when this returns it survives a crash of the machine, whole.

        Create-only; the same key with the same bytes again is fine (a repeated request). A failed put leaves nothing
        visible under the key. `crc64` is CRC64NVME of the body, for stores that verify it.
        """
        ...

    def read_into(self, key: str, offset: int, out: memoryview) -> None:
        """Fills `out` from `offset`; an object too short is `BlobMissing` with its real size in the message."""
        ...

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        """The bytes in pieces of at most `piece_bytes`; a piece is valid until the next one is taken."""
        ...

    def size(self, key: str) -> int | None:
        """The size in bytes, or None when absent."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Removes the objects; absent is fine. After an error some may be gone: repeating it is fine."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """Every object whose key begins with `prefix`, in key order, without holding all in memory.

        Only keys beyond `after`, which need not exist: a listing goes on where another one ended. (A store that sorts
        by folders puts `a/x` before `a-b`, and goes on in that order; no keys of the service differ like that.)
        """
        ...


@runtime_checkable
class FileBacked(Protocol):
    """A store whose objects are files, so that the kernel can send them."""

    def opened(self, key: str, *, reaching: int) -> AbstractContextManager[int]:
        """A descriptor for reading, closed at the end; an object shorter than `reaching` bytes is `BlobMissing`."""
        ...
