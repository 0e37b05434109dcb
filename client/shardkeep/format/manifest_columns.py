"""`Manifest`: what one rank saved, as columns, with a row view and a digest of its content."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from blake3 import blake3

from shardkeep.format.boxes import Corners
from shardkeep.format.buffers import Buffer
from shardkeep.format.chunk_table import ChunkTable, Places
from shardkeep.format.chunks import ChunkRef
from shardkeep.format.codecs import Codec
from shardkeep.format.columns import Bytes, Flags, Ints, starts_of
from shardkeep.format.dtypes import dtype_coded
from shardkeep.format.fingerprints import FINGERPRINT_BYTES
from shardkeep.format.regions import Region
from shardkeep.format.segments import SegmentRef, SliceKind, SliceRecord, ValueRecord
from shardkeep.format.tensor_table import TensorTable, pack_texts

EnvironmentValue: TypeAlias = str | int | float | bool

_DIGEST_DOMAIN = b"shardkeep manifest content 1\0"


@dataclass(frozen=True, slots=True, eq=False)
class SliceColumns:
    """The slices of one rank, sorted by tensor row, offsets, then sizes; no region of a tensor repeats.

    `raw_bytes` and `segment_counts` follow from dtype and region. `segment_counts` is also the number of fingerprints;
    witnesses have those and no place.
    """

    tensor: Ints
    witness: Flags
    corners: Corners
    raw_bytes: Ints
    segment_counts: Ints

    def __len__(self) -> int:
        return len(self.tensor)


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """What one rank saved. Built by `build_manifest` or `decode_manifest`, which check everything.

    `fingerprints` has one row of 16 bytes for each segment of each slice, in slice order, witnesses included; `places`
    one row for each segment of each slice that is no witness. `environment` says what wrote it (torch version, say).
    """

    format_version: int
    rank: int
    world_size: int
    step: int
    tensors: TensorTable
    slice_columns: SliceColumns
    fingerprints: Bytes
    places: Places
    chunk_table: ChunkTable
    values: tuple[ValueRecord, ...]
    metrics: Mapping[str, float]
    environment: Mapping[str, EnvironmentValue]

    def chunks(self) -> tuple[ChunkRef, ...]:
        """Every chunk that a segment names, once."""
        return self.chunk_table.rows()

    def slices(self) -> Iterator[SliceRecord]:
        """The slices as objects, in stored order. For whole manifests the columns are far cheaper."""
        columns, chunks = self.slice_columns, self.chunk_table.rows()
        names, shapes = self.tensors.names, [self.tensors.shapes.shape(row) for row in range(len(self.tensors))]
        dtypes = [dtype_coded(code).name for code in self.tensors.dtype_codes.tolist()]
        kinds = [SliceKind(kind) for kind in self.tensors.kinds.tolist()]
        joined = self.fingerprints.tobytes()
        places = zip(
            self.places.chunk.tolist(),
            self.places.offset.tolist(),
            self.places.size.tolist(),
            self.places.codec.tolist(),
            strict=True,
        )
        ends = starts_of(columns.segment_counts).tolist()
        for row, (tensor, is_witness) in enumerate(zip(columns.tensor.tolist(), columns.witness.tolist(), strict=True)):
            fingerprints = tuple(
                joined[start : start + FINGERPRINT_BYTES]
                for start in range(ends[row] * FINGERPRINT_BYTES, ends[row + 1] * FINGERPRINT_BYTES, FINGERPRINT_BYTES)
            )
            segments = []
            for fingerprint in () if is_witness else fingerprints:
                chunk, offset, size, codec = next(places)
                segments.append(SegmentRef(chunks[chunk], offset, size, Codec(codec), fingerprint))
            yield SliceRecord(
                names[tensor],
                dtypes[tensor],
                shapes[tensor],
                Region(*columns.corners.region_columns(row)),
                kinds[tensor],
                is_witness,
                tuple(segments),
                fingerprints,
            )

    def content_digest(self) -> bytes:
        """BLAKE3 (32 bytes) of what was saved: step, world size, tensors, regions, witness marks, fingerprints, values.

        Not of where the bytes are: chunks, codecs and the order in which rows were given do not count; nor do rank,
        metrics and environment. docs/format.md gives the exact input.
        """
        columns, shapes = self.slice_columns, self.tensors.shapes
        digest = blake3(_DIGEST_DOMAIN + struct.pack("<QQ", self.step, self.world_size))
        parts: tuple[Buffer, ...] = (
            pack_texts(self.tensors.names),
            self.tensors.dtype_codes.astype(np.uint8).tobytes(),
            self.tensors.kinds.astype(np.uint8).tobytes(),
            _words(shapes.ndims),
            _words(shapes.dims),
            _words(columns.tensor),
            columns.witness.astype(np.uint8).tobytes(),
            _words(columns.corners.offsets),
            _words(columns.corners.sizes),
            self.fingerprints.tobytes(),
            pack_texts([value.path for value in self.values]),
            bytes(value.per_rank for value in self.values),
            struct.pack(f"<{len(self.values)}Q", *(len(value.encoded) for value in self.values)),
            b"".join(value.encoded for value in self.values),
        )
        for part in parts:
            digest.update(struct.pack("<Q", len(part)))
            digest.update(part)
        return digest.digest()


def _words(column: Ints) -> bytes:
    return column.astype("<i8").tobytes()
