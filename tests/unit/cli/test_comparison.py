"""Changes between checkpoints, judged by fingerprints."""

from __future__ import annotations

from shardkeep.cli.comparison import Change, StoredSegment, TensorShape, compare_contents, compare_shapes
from shardkeep.format.regions import Region

MIB = 1 << 20
SHAPE = TensorShape("uint8", (2 * MIB,), 2 * MIB)


def segments(*cut: tuple[int, int, bytes], size: int = MIB) -> dict[tuple[Region, int], StoredSegment]:
    return {(Region((start,), (2 * MIB,)), raw_start): StoredSegment(print_, size) for start, raw_start, print_ in cut}


def test_a_tensor_that_one_side_lacks_is_added_or_removed() -> None:
    added, removed = compare_shapes("t", None, SHAPE), compare_shapes("t", SHAPE, None)
    assert added is not None
    assert removed is not None
    assert (added.change, removed.change) == (Change.ADDED, Change.REMOVED)
    assert (added.raw_bytes, removed.raw_bytes) == (2 * MIB, 0)


def test_another_shape_or_dtype_is_a_change_and_equal_ones_say_nothing() -> None:
    other = compare_shapes("t", SHAPE, TensorShape("int8", (2 * MIB,), 2 * MIB))
    assert other is not None
    assert other.change is Change.CHANGED
    assert compare_shapes("t", SHAPE, SHAPE) is None


def test_equal_fingerprints_are_unchanged_and_wholly_reused() -> None:
    found = compare_contents("t", SHAPE, segments((0, 0, b"a"), (0, MIB, b"b")), segments((0, 0, b"a"), (0, MIB, b"b")))
    assert (found.change, found.reused_bytes) == (Change.UNCHANGED, 2 * MIB)


def test_one_changed_segment_leaves_the_other_reused() -> None:
    found = compare_contents("t", SHAPE, segments((0, 0, b"a"), (0, MIB, b"b")), segments((0, 0, b"a"), (0, MIB, b"c")))
    assert (found.change, found.reused_bytes) == (Change.CHANGED, MIB)


def test_other_slices_cannot_be_compared_and_are_called_recut() -> None:
    found = compare_contents("t", SHAPE, segments((0, 0, b"a")), segments((1, 0, b"x")))
    assert (found.change, found.reused_bytes) == (Change.RECUT, 0)
