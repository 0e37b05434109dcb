"""Differences of indexes: told by fingerprints, whatever the cut, and never told where they cannot be known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.format import index_difference
from shardkeep.format.index import Index, build_index
from shardkeep.format.index_difference import Change, IndexDifference, compare_indexes
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind, SliceRecord
from tests.unit.format.builders import Array, ChunkShelf, floats, manifest_of

MIB = SEGMENT_BYTES


def rows_region(tensor: Array, start: int, stop: int) -> Region:
    return Region((start, *(0,) * (tensor.ndim - 1)), (stop - start, *tensor.shape[1:]))


def index_of(*by_rank: Sequence[SliceRecord]) -> Index:
    manifests = [manifest_of(slices, rank=rank, world_size=len(by_rank)) for rank, slices in enumerate(by_rank)]
    index, problems = build_index(manifests)
    assert not problems
    return index


def sharded(tensors: Mapping[str, Array], world_size: int, *, kind: SliceKind = SliceKind.PARAMETER) -> Index:
    """Each tensor cut into runs of rows, one for each rank."""
    shelf = ChunkShelf()
    by_rank: list[list[SliceRecord]] = [[] for _ in range(world_size)]
    for name, tensor in tensors.items():
        cuts = [len(tensor) * rank // world_size for rank in range(world_size + 1)]
        for rank in range(world_size):
            region = rows_region(tensor, cuts[rank], cuts[rank + 1])
            by_rank[rank].append(shelf.slice_of(name, tensor, region, kind=kind))
    return index_of(*by_rank)


def told(difference: IndexDifference) -> dict[str, tuple[Change, int]]:
    columns = zip(difference.names, difference.changes.tolist(), difference.changed_bytes.tolist(), strict=True)
    return {name: (Change(change), changed) for name, change, changed in columns}


def test_what_one_side_lacks_is_added_or_removed_and_another_shape_or_dtype_is_reshaped() -> None:
    weight = floats(4, 2)
    here = sharded({"a": weight, "new": weight, "shape": weight, "type": weight, "rank": weight}, 2)
    there = sharded(
        {"a": weight, "old": floats(8), "shape": floats(2, 4), "type": weight.astype("f8"), "rank": floats(8)}, 2
    )

    found = compare_indexes(here, there)

    assert told(found) == {
        "new": (Change.ADDED, 32),
        "old": (Change.REMOVED, 32),
        "rank": (Change.RESHAPED, 32),
        "shape": (Change.RESHAPED, 32),
        "type": (Change.RESHAPED, 32),
    }
    assert (found.same, found.same_bytes) == (1, 32)
    assert [(int(row), int(other)) for row, other in zip(found.rows, found.other_rows, strict=True)] == [
        (here.find(name) if name != "old" else -1, there.find(name) if name != "new" else -1) for name in found.names
    ]
    assert [found.count(change) for change in Change] == [1, 1, 1, 0, 3, 0]


def test_changed_bytes_are_those_of_the_segments_that_differ() -> None:
    before = np.arange(3 * MIB // 4 + 5, dtype="<i4")
    after = before.copy()
    after[-1] += 1
    after[0] += 1

    found = compare_indexes(sharded({"t": after, "same": before}, 1), sharded({"t": before, "same": before}, 1))

    assert told(found) == {"t": (Change.CHANGED, MIB + 20)}
    assert (found.same, found.same_bytes) == (1, 2 * before.nbytes - MIB - 20)


def test_slices_cut_otherwise_at_whole_segments_are_compared_all_the_same() -> None:
    before = np.arange(8 * MIB, dtype=np.uint8).reshape(8, MIB)
    after = before.copy()
    after[5, 7] += 1

    assert told(compare_indexes(sharded({"t": before}, 4), sharded({"t": before}, 2))) == {}
    found = compare_indexes(sharded({"t": after}, 4), sharded({"t": before}, 2))
    assert told(found) == {"t": (Change.CHANGED, MIB)}


def test_what_was_cut_so_that_nothing_corresponds_is_recut_and_not_called_changed() -> None:
    weight = floats(6, 4)

    found = compare_indexes(sharded({"t": weight}, 3), sharded({"t": weight}, 2))

    assert told(found) == {"t": (Change.RECUT, weight.nbytes)}


def test_boxes_that_are_no_runs_are_compared_with_the_same_box_only() -> None:
    weight = floats(4, 4)
    shelf = ChunkShelf()
    left, right = Region((0, 0), (4, 2)), Region((0, 2), (4, 2))
    top, low = Region((0, 2), (2, 2)), Region((2, 2), (2, 2))
    by_column = index_of([shelf.slice_of("t", weight, left)], [shelf.slice_of("t", weight, right)])
    mixed = [[shelf.slice_of("t", weight, box)] for box in (left, top, low)]
    changed = weight.copy()
    changed[0, 0] += 1

    assert told(compare_indexes(by_column, index_of(*mixed))) == {"t": (Change.RECUT, 32)}
    there = index_of(*[[shelf.slice_of("t", changed, box)] for box in (left, top, low)])
    assert told(compare_indexes(by_column, there)) == {"t": (Change.CHANGED, 64)}


def test_buffers_that_differ_by_rank_are_compared_rank_by_rank() -> None:
    shelf = ChunkShelf()

    def kept(*values: float) -> Index:
        return index_of(*[[shelf.slice_of("b", np.array([value], "<f4"), kind=SliceKind.BUFFER)] for value in values])

    assert told(compare_indexes(kept(1, 2), kept(1, 2))) == {}
    assert told(compare_indexes(kept(1, 2), kept(1, 3))) == {"b": (Change.CHANGED, 4)}
    assert told(compare_indexes(kept(1, 1), kept(1, 2)))["b"][0] is Change.CHANGED
    assert told(compare_indexes(kept(1, 2), kept(1, 1)))["b"][0] is Change.CHANGED
    assert told(compare_indexes(kept(1, 1, 1), kept(1, 1))) == {}


def test_a_checkpoint_without_tensors_differs_from_any_other_by_all_of_them() -> None:
    some = sharded({"t": floats(2)}, 1)
    none = index_of([])

    assert told(compare_indexes(none, none)) == {}
    assert told(compare_indexes(some, none)) == {"t": (Change.ADDED, 8)}
    assert told(compare_indexes(none, some)) == {"t": (Change.REMOVED, 8)}
    assert compare_indexes(sharded({"e": floats(0, 3)}, 2), sharded({"e": floats(0, 3)}, 1)).same == 1


@pytest.mark.parametrize("at_once", [1, 3, 1 << 20])
def test_the_answer_does_not_depend_on_how_many_segments_are_compared_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_difference, "_SEGMENTS_AT_ONCE", at_once)
    tensors = {f"t{number}": floats(4, 3, seed=number) for number in range(7)}
    other = {**tensors, "t2": floats(4, 3, seed=99), "t5": floats(4, 3, seed=98)}

    found = compare_indexes(sharded(tensors, 2), sharded(other, 2))

    assert told(found) == {"t2": (Change.CHANGED, 48), "t5": (Change.CHANGED, 48)}
    assert found.same == 5


@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    after=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    worlds=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_same_and_changed_are_said_only_where_they_are_true(
    before: list[int], after: list[int], worlds: tuple[int, int]
) -> None:
    one, other = (np.array(values, np.int64).reshape(-1, 1) for values in (after, before))

    found = told(compare_indexes(sharded({"t": one}, worlds[0]), sharded({"t": other}, worlds[1]))).get("t")

    change = Change.SAME if found is None else found[0]
    if one.shape != other.shape:
        assert change is Change.RESHAPED
    elif np.array_equal(one, other):
        assert change in (Change.SAME, Change.RECUT)
    else:
        assert change in (Change.CHANGED, Change.RECUT)
    if worlds[0] == worlds[1]:
        assert change is not Change.RECUT
