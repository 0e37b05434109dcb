"""Presigning: requests that a client sends to the object store itself, and what that store was seen to enforce."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

Checksum: TypeAlias = Literal["crc64nvme", "crc32c"]


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request that needs no other credentials until it expires. Its URL is a secret."""

    method: str
    url: str
    headers: dict[str, str]
    """Must be sent as they are: they are signed, or change what the store does."""
    expires_at: datetime
    """In UTC."""


class Presigner(Protocol):
    """Signs requests for one object store. Thread-safe; asks nobody, so it never fails for want of a network.

    Keys are checked as by `BlobStore`; what a store without the ability ignores (see `StoreAbilities`) is signed all
    the same.
    """

    def put(self, key: str, *, size_bytes: int, crc64: int, lifetime_seconds: int) -> SignedRequest:
        """A PUT of exactly `size_bytes` with CRC64NVME `crc64`, under a key that nothing has (`If-None-Match: *`)."""
        ...

    def get(self, key: str, *, lifetime_seconds: int) -> SignedRequest:
        """A GET; the client may add a Range."""
        ...


@dataclass(frozen=True, slots=True)
class StoreAbilities:
    """What an object store really does, as a probe saw it: what it answers to a wrong request, not what it says.

    The defaults are those of a store that clients cannot reach.
    """

    checksum: Checksum | None = None
    """Which checksum header of a PUT it verifies: a wrong one is refused."""
    presigned_checksum_enforced: bool = False
    """Whether a presigned PUT (CRC64NVME signed) of other bytes, or of another length, is refused."""
    create_only: bool = True
    """Whether a PUT with `If-None-Match: *` leaves an object that is there alone, races included."""
    presigned_create_only: bool = False
    """The same for a presigned PUT."""
    versioned: bool = False
    """Whether deleted objects stay as old versions, so that deletes free nothing by themselves."""
