"""Which bytes are fetched together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardkeep.format.segments import ChunkRef
from shardkeep.planning.range_reads import StoredExtent, plan_range_reads

CHUNKS = [ChunkRef(f"{number:064x}", 1000, 0) for number in range(2)]
PLACES = st.lists(st.tuples(st.sampled_from(CHUNKS), st.integers(0, 20), st.integers(1, 20)), max_size=30)


@given(PLACES)
def test_every_extent_is_read_once_and_gaps_and_lengths_are_bounded(
    places: list[tuple[ChunkRef, int, int]],
) -> None:
    ends = dict.fromkeys(CHUNKS, 0)
    extents = []
    for number, (chunk, gap, size) in enumerate(places):
        extents.append(StoredExtent(chunk, ends[chunk] + gap, size, number))
        ends[chunk] = extents[-1].end
    reads = plan_range_reads(extents, gap_bytes=8, longest_bytes=50)
    assert sorted(extent.key for read in reads for extent in read.extents) == list(range(len(places)))
    for read in reads:
        assert read.size_bytes <= 50
        assert all(0 <= gap <= 8 for gap in read.gaps())
        assert sum(extent.size_bytes for extent in read.extents) + sum(read.gaps()) == read.size_bytes


def test_neighbours_become_one_read() -> None:
    extents = [StoredExtent(CHUNKS[0], start, 10, start) for start in (20, 0, 10)]
    (read,) = plan_range_reads(extents)
    assert (read.offset, read.size_bytes) == (0, 30)


def test_nothing_needed_is_nothing_read() -> None:
    assert plan_range_reads([]) == []
