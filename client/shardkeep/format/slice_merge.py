"""The slices of many ranks, one after the other: what `IndexBuilder` gathers before it sorts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep.format.boxes import Boxes, boxes_of
from shardkeep.format.chunk_table import Places
from shardkeep.format.columns import Bytes, Flags, Ints, range_positions, starts_of
from shardkeep.format.manifest_columns import Manifest


@dataclass(frozen=True, slots=True, eq=False)
class RankSlices:
    """The non-empty slices of one rank; `tensor` numbers tensors as `TensorMerge` does, `places.chunk` local rows."""

    rank: int
    tensor: npt.NDArray[np.int32]
    first: Ints
    last: Ints
    witness: Flags
    raw_bytes: Ints
    segment_counts: npt.NDArray[np.int32]
    fingerprints: Bytes
    places: Places


@dataclass(frozen=True, slots=True, eq=False)
class MergedSlices:
    """All ranks' slices by ascending rank; slice s has the fingerprints from `fingerprint_starts[s]` on, and places."""

    boxes: Boxes
    ranks: Ints
    witness: Flags
    raw_bytes: Ints
    segment_counts: Ints
    fingerprint_starts: Ints
    place_starts: Ints
    fingerprints: Bytes
    places: Places


def slices_of_rank(manifest: Manifest, numbers: Ints, agrees: Flags) -> RankSlices:
    """The slices of one manifest, without empty ones and those of tensors that do not agree with other ranks."""
    columns = manifest.slice_columns
    fingerprints, places = manifest.fingerprints, manifest.places
    tensor, witness, raw_bytes, counts = columns.tensor, columns.witness, columns.raw_bytes, columns.segment_counts
    boxes = boxes_of(manifest.tensors.shapes, tensor, columns.corners)
    is_kept = (raw_bytes > 0) & agrees[tensor]
    if not is_kept.all():
        rows = np.flatnonzero(is_kept)
        stored_counts = np.where(witness, 0, counts)
        places = places.take(range_positions(starts_of(stored_counts)[:-1][rows], stored_counts[rows]))
        fingerprints = fingerprints[range_positions(starts_of(counts)[:-1][rows], counts[rows])]
        tensor, witness, raw_bytes, counts = tensor[rows], witness[rows], raw_bytes[rows], counts[rows]
        boxes = boxes.take(rows)
    return RankSlices(
        manifest.rank,
        numbers[tensor].astype(np.int32),
        boxes.first,
        boxes.last,
        witness,
        raw_bytes,
        counts.astype(np.int32),
        fingerprints,
        Places(
            places.chunk.astype(np.int32),
            places.offset.astype(np.int32),
            places.size.astype(np.int32),
            places.codec.astype(np.uint8),
        ),
    )


def merge_slices(parts: Sequence[RankSlices], tensor_rows: Ints, chunk_rows: Sequence[Ints]) -> MergedSlices:
    """All parts, which come by ascending rank; numbers become rows of the merged tensor and chunk tables."""
    witness = np.concatenate([part.witness for part in parts])
    counts = np.concatenate([part.segment_counts for part in parts]).astype(np.int64)
    places = Places(
        np.concatenate(
            [rows[part.places.chunk].astype(np.int32) for part, rows in zip(parts, chunk_rows, strict=True)]
        ),
        np.concatenate([part.places.offset for part in parts]),
        np.concatenate([part.places.size for part in parts]),
        np.concatenate([part.places.codec for part in parts]),
    )
    return MergedSlices(
        Boxes(
            tensor_rows[np.concatenate([part.tensor for part in parts])],
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.last for part in parts]),
        ),
        np.repeat(np.array([part.rank for part in parts], np.int64), [len(part.tensor) for part in parts]),
        witness,
        np.concatenate([part.raw_bytes for part in parts]),
        counts,
        starts_of(counts)[:-1],
        starts_of(np.where(witness, 0, counts))[:-1],
        np.concatenate([part.fingerprints for part in parts]),
        places,
    )
