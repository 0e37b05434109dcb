"""`build_manifest`: columns from the row objects a client has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.chunk_table import Places, chunk_table_of
from shardkeep.format.chunks import ChunkRef
from shardkeep.format.columns import Ints
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.fingerprints import FINGERPRINT_BYTES
from shardkeep.format.manifest_checks import assemble_manifest
from shardkeep.format.manifest_columns import EnvironmentValue, Manifest
from shardkeep.format.segments import SegmentRef, SliceRecord, ValueRecord
from shardkeep.format.tensor_table import TensorTable, make_tensor_table, shapes_of
from shardkeep.format.versions import FORMAT_VERSION


def build_manifest(
    *,
    rank: int,
    world_size: int,
    step: int,
    slices: Iterable[SliceRecord],
    values: Iterable[ValueRecord] = (),
    metrics: Mapping[str, float] | None = None,
    environment: Mapping[str, EnvironmentValue] | None = None,
) -> Manifest:
    """The manifest of one rank, in canonical order whatever order `slices` and `values` come in.

    FormatError, naming the tensor, where slices of one name disagree, a region repeats or leaves its shape, or
    segments and fingerprints do not fit the region's bytes.
    """
    records = sorted(slices, key=attrgetter("name", "region"))
    for record in records:
        _check_record(record)
    tensors, tensor_rows = _tensor_columns(records)
    segments = [segment for record in records for segment in record.segments]
    chunk_rows, chunks = _number_chunks(segments)
    return assemble_manifest(
        format_version=FORMAT_VERSION,
        rank=rank,
        world_size=world_size,
        step=step,
        tensors=tensors,
        slice_tensor=tensor_rows,
        witness=np.fromiter((record.witness for record in records), np.bool_, len(records)),
        offsets=_ints([offset for record in records for offset in record.region.offsets]),
        sizes=_ints([size for record in records for size in record.region.sizes]),
        fingerprints=np.frombuffer(
            b"".join(fingerprint for record in records for fingerprint in record.fingerprints), np.uint8
        ).reshape(-1, FINGERPRINT_BYTES),
        places=Places(
            chunk_rows,
            _ints([segment.offset for segment in segments]),
            _ints([segment.size_bytes for segment in segments]),
            _ints([segment.codec for segment in segments]),
        ),
        chunk_table=chunk_table_of(chunks),
        values=tuple(sorted(values, key=attrgetter("path"))),
        metrics=dict(metrics or {}),
        environment=dict(environment or {}),
    )


def _check_record(record: SliceRecord) -> None:
    if not record.region.within(record.shape):
        raise FormatError(f"{record.name}: {record.region} does not lie within the shape {record.shape}")
    if any(len(fingerprint) != FINGERPRINT_BYTES for fingerprint in record.fingerprints):
        raise FormatError(f"{record.name}: a fingerprint is missing or not {FINGERPRINT_BYTES} bytes long")
    if record.witness and record.segments:
        raise FormatError(f"{record.name}: a witness has segments")
    if not record.witness and tuple(segment.fingerprint for segment in record.segments) != record.fingerprints:
        raise FormatError(f"{record.name}: the fingerprints of {record.region} are missing or not its segments'")


def _tensor_columns(records: list[SliceRecord]) -> tuple[TensorTable, Ints]:
    firsts: list[SliceRecord] = []
    rows = np.empty(len(records), np.int64)
    for position, record in enumerate(records):
        if not firsts or firsts[-1].name != record.name:
            firsts.append(record)
        first = firsts[-1]
        if (record.dtype, record.shape, record.kind) != (first.dtype, first.shape, first.kind):
            raise FormatError(f"{record.name}: slices of one rank disagree on dtype, shape or kind")
        rows[position] = len(firsts) - 1
    table = make_tensor_table(
        tuple(record.name for record in firsts),
        _ints([dtype_named(record.dtype).code for record in firsts]),
        _ints([record.kind for record in firsts]),
        shapes_of([record.shape for record in firsts]),
    )
    return table, rows


def _number_chunks(segments: list[SegmentRef]) -> tuple[Ints, list[ChunkRef]]:
    """Chunk rows in order of first use, so that consecutive segments store small differences."""
    numbers: dict[str, int] = {}
    chunks: list[ChunkRef] = []
    rows = np.empty(len(segments), np.int64)
    for position, segment in enumerate(segments):
        row = numbers.setdefault(segment.chunk.digest, len(chunks))
        if row == len(chunks):
            chunks.append(segment.chunk)
        elif chunks[row] is not segment.chunk and chunks[row] != segment.chunk:
            raise FormatError(f"chunk {segment.chunk.digest} is named with two sizes or checksums")
        rows[position] = row
    return rows, chunks


def _ints(numbers: list[int]) -> Ints:
    try:
        return np.array(numbers, np.int64)
    except OverflowError as exc:
        raise FormatError("a number does not fit 64 bits") from exc
