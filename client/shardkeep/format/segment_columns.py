"""What follows from slice sizes alone: how many segments each slice has and how many raw bytes each segment."""

from __future__ import annotations

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.columns import Bytes, Ints, starts_of
from shardkeep.format.segments import SEGMENT_BYTES


def segment_counts(raw_bytes: Ints) -> Ints:
    """The number of segments of each slice."""
    return -(-raw_bytes // SEGMENT_BYTES)


def raw_segment_sizes(raw_bytes: Ints, counts: Ints) -> Ints:
    """The raw bytes of each segment of all slices, one slice after the other. `counts` are `segment_counts`."""
    ends = starts_of(counts)[1:]
    sizes = np.full(int(ends[-1]) if len(ends) else 0, SEGMENT_BYTES, np.int64)
    has_segments = counts > 0
    sizes[ends[has_segments] - 1] = (raw_bytes - (counts - 1) * SEGMENT_BYTES)[has_segments]
    return sizes


def check_fingerprints(fingerprints: Bytes, counts: Ints) -> None:
    """FormatError unless there is one fingerprint for each segment and none is missing, that is all zero."""
    # In floats, because absurd counts must not wrap around.
    if float(counts.astype(np.float64).sum()) != len(fingerprints):
        raise FormatError(
            f"{len(fingerprints)} fingerprints are given for {int(counts.astype(object).sum())} segments: "
            "every segment needs one"
        )
    words = fingerprints.view(np.uint64)
    if len(words) and (words[:, 0] | words[:, 1]).min() == 0:
        raise FormatError("a fingerprint is missing: it is all zero")
