"""The chunks that segments lie in, and where each segment lies, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep.errors import FormatError
from shardkeep.format.chunks import DIGEST_BYTES, MAX_CHUNK_BYTES, ChunkRef
from shardkeep.format.codecs import Codec
from shardkeep.format.columns import Bytes, Ints, frozen


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """Digests (rows of 32 bytes), sizes in bytes, and CRC64NVME of chunks; no digest repeats."""

    digests: Bytes
    sizes: Ints
    crc64s: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.sizes)

    def row(self, row: int) -> ChunkRef:
        """One chunk as an object."""
        return ChunkRef(self.digests[row].tobytes().hex(), int(self.sizes[row]), int(self.crc64s[row]))

    def rows(self) -> tuple[ChunkRef, ...]:
        """All chunks as objects."""
        joined = self.digests.tobytes().hex()
        digests = [joined[start : start + 2 * DIGEST_BYTES] for start in range(0, len(joined), 2 * DIGEST_BYTES)]
        return tuple(map(ChunkRef, digests, self.sizes.tolist(), self.crc64s.tolist()))

    def take(self, rows: Ints) -> ChunkTable:
        """The table of some rows."""
        return ChunkTable(self.digests[rows], self.sizes[rows], self.crc64s[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where encoded segments lie: row of the chunk table, byte offset, encoded size in bytes, codec."""

    chunk: npt.NDArray[np.integer]
    offset: npt.NDArray[np.integer]
    size: npt.NDArray[np.integer]
    codec: npt.NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.chunk)

    def take(self, rows: Ints) -> Places:
        """The places of some segments."""
        return Places(self.chunk[rows], self.offset[rows], self.size[rows], self.codec[rows])


def chunk_table_of(chunks: Sequence[ChunkRef]) -> ChunkTable:
    """The table of these chunks; FormatError on a malformed or oversized one."""
    digests = np.frombuffer(b"".join(chunk.digest_bytes() for chunk in chunks), np.uint8).reshape(-1, DIGEST_BYTES)
    for chunk in chunks:
        if not (0 < chunk.size_bytes <= MAX_CHUNK_BYTES and 0 <= chunk.crc64 < 1 << 64):
            raise FormatError(f"chunk {chunk.digest} has the size {chunk.size_bytes} or the CRC64 {chunk.crc64}")
    sizes = np.fromiter((chunk.size_bytes for chunk in chunks), np.int64, len(chunks))
    crc64s = np.fromiter((chunk.crc64 for chunk in chunks), np.uint64, len(chunks))
    return make_chunk_table(digests, sizes, crc64s)


def make_chunk_table(digests: Bytes, sizes: Ints, crc64s: npt.NDArray[np.uint64]) -> ChunkTable:
    """The table; FormatError if a size is out of bounds or a digest repeats."""
    if not len(digests) == len(sizes) == len(crc64s):
        raise FormatError("the chunk columns differ in length")
    if sizes.size and not 0 < int(sizes.min()) <= int(sizes.max()) <= MAX_CHUNK_BYTES:
        raise FormatError(f"a chunk is empty or larger than {MAX_CHUNK_BYTES} bytes")
    order = digest_order(digests)
    if (digests[order[1:]] == digests[order[:-1]]).all(axis=1).any():
        raise FormatError("a chunk digest repeats")
    for column in (digests, sizes, crc64s):
        frozen(column)
    return ChunkTable(digests, sizes, crc64s)


def digest_order(digests: Bytes) -> Ints:
    """The rows in ascending order of digest, as bytes compare; equal ones keep their order."""
    words = np.ascontiguousarray(digests).view(">u8").astype(np.uint64)
    return np.lexsort(tuple(words[:, column] for column in reversed(range(words.shape[1]))))


def check_places(places: Places, raw_sizes: Ints, chunks: ChunkTable) -> None:
    """FormatError unless each place lies inside its chunk and its codec and encoded size suit the raw size."""
    if not len(places) == len(places.offset) == len(places.size) == len(places.codec) == len(raw_sizes):
        raise FormatError("the segment columns differ in length")
    if not len(places):
        return
    if not 0 <= int(places.chunk.min()) <= int(places.chunk.max()) < len(chunks):
        raise FormatError("a segment names a chunk that is not in the table")
    if int(places.codec.max()) > max(Codec):
        raise FormatError(f"a segment has the unknown codec {int(places.codec.max())}")
    if int(places.offset.min()) < 0 or int(places.offset.max()) > MAX_CHUNK_BYTES or int(places.size.min()) < 1:
        raise FormatError("a segment is empty or begins outside its chunk")
    if (places.offset + places.size > chunks.sizes[places.chunk]).any():
        raise FormatError("a segment ends after its chunk")
    if (places.size > raw_sizes).any() or ((places.codec == Codec.RAW) & (places.size != raw_sizes)).any():
        raise FormatError("a segment's encoded size does not suit its raw size")
