"""Which segments need no upload, because the parent checkpoint has the same bytes in the same place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shardkeep.format.regions import Region
from shardkeep.format.segments import SegmentRef, SliceRecord


@dataclass(frozen=True, slots=True)
class History:
    """The slices of one committed checkpoint that a rank may reuse, by name and region."""

    checkpoint_id: str | None
    slices: Mapping[tuple[str, Region], SliceRecord] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> History:
        """Nothing to reuse."""
        return cls(None)

    @classmethod
    def of(cls, checkpoint_id: str, records: Iterable[SliceRecord]) -> History:
        """The stored slices among `records`; witnesses and empty regions hold nothing to reuse."""
        stored = (record for record in records if record.segments)
        return cls(checkpoint_id, {(record.name, record.region): record for record in stored})

    def usable_on(self, parent_id: str | None) -> History:
        """Itself if the new checkpoint's parent is this one: only its chunks are held for the new one."""
        return self if self.checkpoint_id is not None and self.checkpoint_id == parent_id else History.empty()

    def segments_of(self, name: str, dtype: str, region: Region) -> tuple[SegmentRef, ...]:
        """The stored segments of a slice, in order; none unless name, region and dtype are the same.

        The dtype must be the same since a segment's codec is decoded by it.
        """
        record = self.slices.get((name, region))
        return record.segments if record is not None and record.dtype == dtype else ()


def reusable(stored: tuple[SegmentRef, ...], position: int, fingerprint: bytes) -> SegmentRef | None:
    """The stored segment at `position` of its slice, if its raw bytes are these."""
    if position < len(stored) and stored[position].fingerprint == fingerprint:
        return stored[position]
    return None
