"""Codecs of segments: raw, zstd, and byte planes of which only those that shrink are compressed.

`planes` stores, before the planes: one byte, their number, which is the item size; then for each plane, least
significant byte first, one byte (0 raw, 1 zstd frame) and its stored size as u32. See docs/format.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from shardkeep.errors import IntegrityError
from shardkeep.format.buffers import Buffer
from shardkeep.format.zstd_frames import compress_tuned, decompress_exact

_PLANE = struct.Struct("<BI")
_MAX_PLANES = 16


class Codec(IntEnum):
    """How a segment's bytes are stored. Codes are stored: never change one."""

    RAW = 0
    ZSTD = 1
    PLANES = 2


class Encoded(NamedTuple):
    """A segment as stored, and the codec that was really used: RAW where the wanted one did not shrink it."""

    codec: Codec
    data: bytes | memoryview


def encode_segment(codec: Codec, raw: memoryview, item_bytes: int) -> Encoded:
    """Encode one segment of C-contiguous bytes; RAW, also as the fallback, gives back `raw` itself, uncopied.

    Takes at most about twice the segment's size beside it. PLANES falls back to ZSTD where there is one plane only.
    """
    if codec is Codec.RAW or len(raw) == 0:
        return Encoded(Codec.RAW, raw)
    if codec is Codec.PLANES and 1 < item_bytes <= _MAX_PLANES and len(raw) % item_bytes == 0:
        used, data = Codec.PLANES, _encode_planes(raw, item_bytes)
    else:
        used, data = Codec.ZSTD, compress_tuned(raw)
    return Encoded(used, data) if len(data) < len(raw) else Encoded(Codec.RAW, raw)


def decode_segment(codec: Codec, encoded: Buffer, out: memoryview, *, item_bytes: int) -> None:
    """Decode one segment into `out`, whose length is the raw size.

    IntegrityError unless `encoded` decodes to exactly that; nothing larger than the segment is allocated. What `out`
    holds after an error is undefined.
    """
    if codec == Codec.RAW:
        if len(encoded) != len(out):
            raise IntegrityError(f"a raw segment has {len(encoded)} bytes instead of {len(out)}")
        out[:] = encoded
    elif codec == Codec.ZSTD:
        out[:] = decompress_exact(encoded, len(out))
    elif codec == Codec.PLANES:
        _decode_planes(memoryview(encoded), out, item_bytes)
    else:
        raise IntegrityError(f"unknown codec {codec}")


def _encode_planes(raw: memoryview, item_bytes: int) -> bytes:
    items = np.frombuffer(raw, np.uint8)
    header = bytearray([item_bytes])
    parts: list[bytes] = []
    for position in range(item_bytes):
        plane = items[position::item_bytes].tobytes()
        frame = compress_tuned(plane)
        is_smaller = len(frame) < len(plane)
        stored = frame if is_smaller else plane
        header += _PLANE.pack(is_smaller, len(stored))
        parts.append(stored)
    return b"".join((header, *parts))


def _decode_planes(encoded: memoryview, out: memoryview, item_bytes: int) -> None:
    header_bytes = 1 + item_bytes * _PLANE.size
    if len(encoded) < header_bytes or encoded[0] != item_bytes or len(out) % item_bytes:
        raise IntegrityError(f"not the header of a segment in {item_bytes} byte planes")
    plane_bytes = len(out) // item_bytes
    items = np.frombuffer(out, np.uint8)
    start = header_bytes
    for position in range(item_bytes):
        is_frame, stored_bytes = _PLANE.unpack_from(encoded, 1 + position * _PLANE.size)
        stored = encoded[start : start + stored_bytes]
        start += stored_bytes
        if len(stored) != stored_bytes or is_frame > 1:
            raise IntegrityError(f"byte plane {position} of a segment is cut short or of an unknown kind")
        plane = decompress_exact(stored, plane_bytes) if is_frame else stored
        if len(plane) != plane_bytes:
            raise IntegrityError(f"byte plane {position} has {len(plane)} bytes instead of {plane_bytes}")
        items[position::item_bytes] = np.frombuffer(plane, np.uint8)
    if start != len(encoded):
        raise IntegrityError(f"{len(encoded) - start} bytes follow the last byte plane of a segment")
