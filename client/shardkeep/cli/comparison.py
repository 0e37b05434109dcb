"""What changed between two checkpoints, judged by the fingerprints of their segments. Pure; reads no tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shardkeep.format.regions import Region


class Change(StrEnum):
    """What became of a tensor."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    RECUT = "recut"
    """Of the same dtype and shape, but cut into other slices: fingerprints cannot tell whether it changed."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment's content as far as it is known without reading it."""

    fingerprint: bytes
    raw_bytes: int


Segments = Mapping[tuple[Region, int], StoredSegment]
"""The segments of a tensor, each by the region of its slice and its first byte within that."""


@dataclass(frozen=True, slots=True)
class TensorShape:
    """What must be equal before contents are compared."""

    dtype: str
    shape: tuple[int, ...]
    raw_bytes: int


@dataclass(frozen=True, slots=True)
class TensorChange:
    """One tensor's change from A to B. Bytes are raw bytes of B; for a removed tensor all are 0."""

    name: str
    change: Change
    raw_bytes: int
    reused_bytes: int
    """In segments that A has too, by fingerprint, within the same tensor."""
    before: TensorShape | None
    after: TensorShape | None


def compare_shapes(name: str, before: TensorShape | None, after: TensorShape | None) -> TensorChange | None:
    """The change that shows without looking at contents; None where contents decide."""
    if after is None:
        assert before is not None  # one of the two has it
        return TensorChange(name, Change.REMOVED, 0, 0, before, None)
    if before is None:
        return TensorChange(name, Change.ADDED, after.raw_bytes, 0, None, after)
    if before != after:
        return TensorChange(name, Change.CHANGED, after.raw_bytes, 0, before, after)
    return None


def compare_contents(name: str, shape: TensorShape, before: Segments, after: Segments) -> TensorChange:
    """The change of a tensor that both have with the same dtype and shape."""
    if any(before[key] != after[key] for key in before.keys() & after.keys()):
        change = Change.CHANGED
    elif before.keys() == after.keys():
        change = Change.UNCHANGED
    else:
        change = Change.RECUT
    return TensorChange(name, change, shape.raw_bytes, reused_bytes(before, after), shape, shape)


def reused_bytes(before: Segments, after: Segments) -> int:
    """The raw bytes of the segments in `after` whose content is in `before`."""
    known = set(before.values())
    return sum(segment.raw_bytes for segment in after.values() if segment in known)
