"""The container of every stored object: magic, version, required flags, and checksummed sections.

Layout (little-endian): magic 4 bytes, version u16, flags u16, section count u32; per section codec u8 (0 raw, 1 zstd),
raw size u64, stored size u64, xxh3-64 of the stored bytes u64; xxh3-64 of all of the above u64; then the sections.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from shardkeep.errors import FormatError, IntegrityError, VersionTooNew
from shardkeep.format.buffers import Buffer
from shardkeep.format.versions import FORMAT_VERSION
from shardkeep.format.zstd_frames import compress_level, decompress_exact

_HEADER = struct.Struct("<4sHHI")
_SECTION = struct.Struct("<BQQQ")
_CHECKSUM = struct.Struct("<Q")
_MAX_SECTIONS = 16


@dataclass(frozen=True, slots=True)
class _SectionEntry:
    is_zstd: bool
    raw_bytes: int
    start: int
    stored_bytes: int
    checksum: int


class Container:
    """An opened container; sections are checked and decompressed one by one, when asked for."""

    __slots__ = ("_data", "_entries", "version")

    def __init__(self, data: Buffer, *, magic: bytes, section_count: int, max_raw_bytes: int) -> None:
        """FormatError unless `data` is one whole container of this kind, of at most `max_raw_bytes` uncompressed."""
        self._data = memoryview(data).cast("B")
        self.version = _check_header(self._data, magic, section_count)
        self._entries = _read_entries(self._data, section_count, max_raw_bytes)

    def section(self, row: int) -> memoryview:
        """The raw bytes of one section: a view of the data where it was stored raw. IntegrityError if damaged."""
        entry = self._entries[row]
        stored = self._data[entry.start : entry.start + entry.stored_bytes]
        if xxhash.xxh3_64_intdigest(stored) != entry.checksum:
            raise IntegrityError(f"section {row} does not match its checksum")
        return memoryview(decompress_exact(stored, entry.raw_bytes)) if entry.is_zstd else stored


def pack_container(magic: bytes, sections: Sequence[Buffer], *, level: int) -> bytes:
    """One container; each section is compressed at zstd `level` if that shrinks it."""
    stored = [_shrink(section, level) for section in sections]
    header = bytearray(_HEADER.pack(magic, FORMAT_VERSION, 0, len(sections)))
    for raw, kept in zip(sections, stored, strict=True):
        is_zstd = kept is not raw
        header += _SECTION.pack(is_zstd, len(raw), len(kept), xxhash.xxh3_64_intdigest(kept))
    header += _CHECKSUM.pack(xxhash.xxh3_64_intdigest(bytes(header)))
    return b"".join((header, *stored))


def _shrink(section: Buffer, level: int) -> Buffer:
    frame = compress_level(section, level)
    return frame if len(frame) < len(section) else section


def _check_header(data: memoryview, magic: bytes, section_count: int) -> int:
    if len(data) < _HEADER.size or data[:4] != magic:
        raise FormatError(f"these bytes do not begin with {magic!r}")
    _, version, flags, sections = _HEADER.unpack_from(data)
    if version > FORMAT_VERSION:
        raise VersionTooNew(f"format version {version} is newer than {FORMAT_VERSION}: upgrade shardkeep to read it")
    if flags:
        raise VersionTooNew(f"required flags {flags:#06x} are unknown here: upgrade shardkeep to read it")
    if version < 1 or sections != section_count or sections > _MAX_SECTIONS:
        raise FormatError(f"version {version} with {sections} sections is not a known layout")
    return int(version)


def _read_entries(data: memoryview, section_count: int, max_raw_bytes: int) -> list[_SectionEntry]:
    table_end = _HEADER.size + section_count * _SECTION.size
    start = table_end + _CHECKSUM.size
    if len(data) < start:
        raise FormatError("these bytes end within the header")
    if _CHECKSUM.unpack_from(data, table_end)[0] != xxhash.xxh3_64_intdigest(data[:table_end]):
        raise IntegrityError("the header does not match its checksum")
    entries = []
    for row in range(section_count):
        codec, raw_bytes, stored_bytes, checksum = _SECTION.unpack_from(data, _HEADER.size + row * _SECTION.size)
        if codec > 1 or (codec == 0 and raw_bytes != stored_bytes):
            raise FormatError(f"section {row} has the unknown codec {codec} or sizes that differ")
        entries.append(_SectionEntry(codec == 1, raw_bytes, start, stored_bytes, checksum))
        start += stored_bytes
    if start != len(data):
        raise FormatError(f"the sections end at byte {start} of {len(data)}")
    total = sum(entry.raw_bytes for entry in entries)
    if total > max_raw_bytes:
        raise FormatError(f"{total} bytes uncompressed are above the limit of {max_raw_bytes}")
    return entries
