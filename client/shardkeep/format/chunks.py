"""Chunks: the name (BLAKE3), checksum (CRC64NVME) and size of a run of stored bytes, in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from awscrt.checksums import crc64nvme
from blake3 import blake3

from shardkeep.errors import FormatError, IntegrityError
from shardkeep.format.buffers import Buffer

TARGET_CHUNK_BYTES = 32 << 20
MAX_CHUNK_BYTES = 256 << 20
DIGEST_BYTES = 32

_STEP_BYTES = 128 << 10
"""Bytes given to both hashes in turn: small enough that the second finds them in the L2 cache."""


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk by name: `digest` is 64 lowercase hex digits of BLAKE3 over the stored bytes, `crc64` is CRC64NVME."""

    digest: str
    size_bytes: int
    crc64: int

    def digest_bytes(self) -> bytes:
        """The 32 bytes of the digest; FormatError if it is not 64 lowercase hex digits."""
        try:
            digest = bytes.fromhex(self.digest)
        except ValueError as exc:
            raise FormatError(f"the chunk digest {self.digest[:80]!r} is not hexadecimal") from exc
        if len(digest) != DIGEST_BYTES or digest.hex() != self.digest:
            raise FormatError(f"the chunk digest {self.digest[:80]!r} is not 64 lowercase hexadecimal digits")
        return digest


class ChunkHasher:
    """Names a chunk while its bytes pass by. Used by one thread; releases the GIL while it hashes."""

    __slots__ = ("_blake3", "_crc64", "_size_bytes")

    def __init__(self) -> None:
        self._blake3 = blake3()
        self._crc64 = 0
        self._size_bytes = 0

    def update(self, data: Buffer) -> None:
        """Add the next bytes: any C-contiguous buffer."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _STEP_BYTES):
            step = view[start : start + _STEP_BYTES]
            self._blake3.update(step)
            self._crc64 = crc64nvme(step, self._crc64)
        self._size_bytes += len(view)

    def finish(self) -> ChunkRef:
        """The chunk of all bytes so far; more may follow."""
        return ChunkRef(self._blake3.hexdigest(), self._size_bytes, self._crc64)


def chunk_ref(parts: Iterable[Buffer]) -> ChunkRef:
    """The chunk whose bytes are `parts`, one after the other."""
    hasher = ChunkHasher()
    for part in parts:
        hasher.update(part)
    return hasher.finish()


def verify_chunk(ref: ChunkRef, parts: Iterable[Buffer]) -> None:
    """IntegrityError unless `parts` are exactly the bytes that `ref` names."""
    found = chunk_ref(parts)
    if found == ref:
        return
    differences = [
        f"{what} {has} instead of {wants}"
        for what, has, wants in (
            ("size", found.size_bytes, ref.size_bytes),
            ("crc64", found.crc64, ref.crc64),
            ("digest", found.digest, ref.digest),
        )
        if has != wants
    ]
    raise IntegrityError(f"chunk {ref.digest} is damaged: {'; '.join(differences)}")
