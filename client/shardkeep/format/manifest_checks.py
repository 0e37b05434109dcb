"""What makes columns a manifest: every rule a decoded or built one must satisfy, checked column by column."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.boxes import Corners, check_corners, corner_volumes
from shardkeep.format.chunk_table import ChunkTable, Places, check_places
from shardkeep.format.columns import Bytes, Flags, Ints, frozen
from shardkeep.format.manifest_columns import EnvironmentValue, Manifest, SliceColumns
from shardkeep.format.names import check_name
from shardkeep.format.segment_columns import check_fingerprints, raw_segment_sizes, segment_counts
from shardkeep.format.segments import ValueRecord
from shardkeep.format.tensor_table import TensorTable

MAX_WORLD_SIZE = 1 << 24
MAX_STEP = (1 << 63) - 1


def assemble_manifest(
    *,
    format_version: int,
    rank: int,
    world_size: int,
    step: int,
    tensors: TensorTable,
    slice_tensor: Ints,
    witness: Flags,
    offsets: Ints,
    sizes: Ints,
    fingerprints: Bytes,
    places: Places,
    chunk_table: ChunkTable,
    values: tuple[ValueRecord, ...],
    metrics: Mapping[str, float],
    environment: Mapping[str, EnvironmentValue],
) -> Manifest:
    """The manifest of these columns; FormatError if any rule is broken. No loop over slices in Python."""
    if not 0 <= rank < world_size <= MAX_WORLD_SIZE or not 0 <= step <= MAX_STEP:
        raise FormatError(f"rank {rank} of {world_size} at step {step} is out of range")
    _check_tensor_rows(slice_tensor, len(tensors))
    if len(witness) != len(slice_tensor):
        raise FormatError("the slice columns differ in length")
    corners = check_corners(tensors.shapes, slice_tensor, offsets, sizes)
    _check_order(tensors, slice_tensor, corners)
    raw_bytes = corner_volumes(corners) * tensors.item_bytes[slice_tensor]
    counts = segment_counts(raw_bytes)
    check_fingerprints(fingerprints, counts)
    is_stored = ~witness
    check_places(places, raw_segment_sizes(raw_bytes[is_stored], counts[is_stored]), chunk_table)
    used_chunks = np.zeros(len(chunk_table), np.bool_)
    used_chunks[places.chunk] = True
    if not used_chunks.all():
        raise FormatError("a chunk is listed that no segment names")
    _check_values(values)
    _check_texts(metrics, environment)
    slice_columns = SliceColumns(slice_tensor, witness, corners, raw_bytes, counts)
    for column in (slice_tensor, witness, corners.starts, offsets, sizes, raw_bytes, counts, fingerprints):
        frozen(column)
    for place in (places.chunk, places.offset, places.size, places.codec):
        frozen(place)
    return Manifest(
        format_version,
        rank,
        world_size,
        step,
        tensors,
        slice_columns,
        fingerprints,
        places,
        chunk_table,
        values,
        metrics,
        environment,
    )


def _check_tensor_rows(slice_tensor: Ints, tensor_count: int) -> None:
    steps = np.diff(slice_tensor, prepend=-1, append=tensor_count)
    if steps.min() < 0 or steps[0] != 1 or steps[-1] != 1 or steps.max() > 1:
        raise FormatError("slices are not sorted by tensor, or a tensor has none")


def _check_order(tensors: TensorTable, slice_tensor: Ints, corners: Corners) -> None:
    """Slices of one tensor must strictly ascend by (offsets, sizes): sorted, and no region twice."""
    rows = np.flatnonzero(slice_tensor[1:] == slice_tensor[:-1])
    ndims = tensors.shapes.ndims[slice_tensor]
    undecided = rows
    for column in (corners.offsets, corners.sizes):
        for axis in range(int(ndims[undecided].max(initial=0))):
            has_axis = ndims[undecided] > axis
            here, done = undecided[has_axis], undecided[~has_axis]
            difference = column[corners.starts[here + 1] + axis] - column[corners.starts[here] + axis]
            if (difference < 0).any():
                raise FormatError("slices of one tensor are not sorted by region")
            undecided = np.concatenate((done, here[difference == 0]))
    if len(undecided):
        name = tensors.names[int(slice_tensor[undecided[0]])]
        raise FormatError(f"{name}: a region is listed twice by one rank")


def _check_values(values: tuple[ValueRecord, ...]) -> None:
    paths = [value.path for value in values]
    for path in paths:
        check_name(path)
    for before, after in pairwise(paths):
        if before >= after:
            raise FormatError(f"the value paths are not sorted, or {after!r} repeats")


def _check_texts(metrics: Mapping[str, float], environment: Mapping[str, EnvironmentValue]) -> None:
    for name in (*metrics, *environment):
        check_text(name)
    for value in environment.values():
        if isinstance(value, str):
            check_text(value)
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise FormatError(f"the environment holds {value}, which does not fit 64 bits")


def check_text(text: str) -> None:
    """FormatError unless `text` can be stored as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise FormatError(f"{text[:80]!r} contains lone surrogates, which UTF-8 cannot store") from exc
