"""What shares a chunk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardkeep.format.segments import SliceKind
from shardkeep.planning.packing import SMALL_SLICE_BYTES, ChunkPacker, PackingGroup, packing_group


def test_small_state_is_apart_from_big_and_small_parameters_stay() -> None:
    assert packing_group(SliceKind.OPTIMIZER, 4) is PackingGroup.SMALL_STATE
    assert packing_group(SliceKind.OPTIMIZER, SMALL_SLICE_BYTES + 1) is PackingGroup.OPTIMIZER
    assert packing_group(SliceKind.TENSOR, 8) is PackingGroup.SMALL_STATE
    assert packing_group(SliceKind.PARAMETER, 4) is PackingGroup.PARAMETERS
    assert len({packing_group(kind, 1 << 20) for kind in SliceKind}) == len(SliceKind)


@given(st.lists(st.tuples(st.sampled_from(list(PackingGroup)), st.integers(1, 60)), max_size=80))
def test_every_segment_is_packed_once_in_order_and_within_the_target(items: list[tuple[PackingGroup, int]]) -> None:
    packer: ChunkPacker[int] = ChunkPacker(target_bytes=100)
    chunks = [chunk for number, (group, size) in enumerate(items) if (chunk := packer.add(group, number, size))]
    chunks += packer.flush()
    for chunk in chunks:
        position = 0
        for number, offset in chunk.segments:
            assert items[number][0] is chunk.group
            assert offset == position
            position += items[number][1]
        assert position == chunk.size_bytes <= 100
    for group in PackingGroup:
        packed = [number for chunk in chunks if chunk.group is group for number, _ in chunk.segments]
        assert packed == [number for number, (its, _) in enumerate(items) if its is group]
    assert not list(packer.flush())
