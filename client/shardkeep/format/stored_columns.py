"""Columns as they are stored in msgpack maps, shared by manifests, indexes and load plans."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.buffers import Buffer
from shardkeep.format.chunk_table import ChunkTable, Places, make_chunk_table
from shardkeep.format.chunks import DIGEST_BYTES
from shardkeep.format.columns import (
    Flags,
    pack_signed,
    pack_unsigned,
    unpack_bytes,
    unpack_signed,
    unpack_unsigned,
)

T = TypeVar("T")


class StoredPlaces(msgspec.Struct, forbid_unknown_fields=True):
    """Where segments lie: the differences of chunk rows, and of offsets from where the segment before ends."""

    chunk: memoryview
    offset: memoryview
    size: memoryview
    codec: memoryview


class StoredChunks(msgspec.Struct, forbid_unknown_fields=True):
    """A chunk table: 32 bytes a digest, sizes, 8 bytes a CRC64NVME."""

    digests: memoryview
    sizes: memoryview
    crc64s: memoryview


def store_places(places: Places) -> StoredPlaces:
    """Places as differences, which are mostly 0 and 1 where a rank stored its segments in order."""
    chunk = places.chunk.astype(np.int64)
    ends = places.offset + places.size
    return StoredPlaces(
        chunk=memoryview(pack_signed(np.diff(chunk, prepend=0))),
        offset=memoryview(pack_signed(places.offset - np.concatenate((np.zeros(1, np.int64), ends))[:-1])),
        size=memoryview(pack_unsigned(places.size)),
        codec=memoryview(pack_unsigned(places.codec)),
    )


def load_places(stored: StoredPlaces) -> Places:
    """Places from differences. Absurd numbers wrap around and are left to `check_places`."""
    size = unpack_unsigned(stored.size, None, "segment sizes")
    count = len(size)
    offset = unpack_signed(stored.offset, count, "segment offsets")
    offset[1:] += size[:-1]
    return Places(
        np.cumsum(unpack_signed(stored.chunk, count, "segment chunks")),
        np.cumsum(offset),
        size,
        unpack_unsigned(stored.codec, count, "segment codecs"),
    )


def store_chunks(table: ChunkTable) -> StoredChunks:
    """The chunk table as stored."""
    return StoredChunks(
        digests=memoryview(table.digests.tobytes()),
        sizes=memoryview(pack_unsigned(table.sizes)),
        crc64s=memoryview(table.crc64s.astype("<u8").tobytes()),
    )


def load_chunks(stored: StoredChunks) -> ChunkTable:
    """The checked chunk table."""
    digests = unpack_bytes(stored.digests, None, DIGEST_BYTES, "chunk digests")
    crc64s = unpack_bytes(stored.crc64s, len(digests), 8, "chunk checksums").view("<u8")[:, 0]
    return make_chunk_table(digests, unpack_unsigned(stored.sizes, len(digests), "chunk sizes"), crc64s)


def pack_flags(flags: Flags) -> bytes:
    """One bit a row, the first in the lowest bit of the first byte."""
    return np.packbits(flags, bitorder="little").tobytes()


def unpack_flags(data: Buffer, count: int, what: str) -> Flags:
    """The rows of `pack_flags`; FormatError unless the length fits and the bits after the last row are zero."""
    packed = unpack_bytes(data, (count + 7) // 8, 1, what)[:, 0]
    bits = np.unpackbits(packed, bitorder="little")
    if bits[count:].any():
        raise FormatError(f"column {what!r} has bits after its last row")
    return bits[:count].view(np.bool_)


def decode_map(decoder: msgspec.msgpack.Decoder[T], data: Buffer, what: str) -> T:
    """A typed msgpack map; FormatError if it is not exactly that."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise FormatError(f"the {what} is malformed: {exc}") from exc
