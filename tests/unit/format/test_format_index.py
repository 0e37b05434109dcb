from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import FormatError, VersionTooNew
from shardkeep.format.index import Index, IndexBuilder, build_index, decode_index, decode_tensor_table, encode_index
from shardkeep.format.load_plan import LoadRequest, plan_load
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind, SliceRecord
from tests.unit.format.builders import ChunkShelf, floats, manifest_of
from tests.unit.format.hostile import altered


def halves(shelf: ChunkShelf, name: str = "w") -> list[SliceRecord]:
    weights = floats(4, 6)
    return [shelf.slice_of(name, weights, Region((row, 0), (2, 6))) for row in (0, 2)]


def index_of(*slices_by_rank: list[SliceRecord]) -> tuple[Index, list[tuple[str, str, tuple[int, ...]]]]:
    manifests = [manifest_of(slices, rank=rank) for rank, slices in enumerate(slices_by_rank)]
    index, problems = build_index(manifests)
    return index, [(problem.code, problem.tensor, problem.ranks) for problem in problems]


def sample_index() -> Index:
    shelf = ChunkShelf()
    one, other = halves(shelf)
    big = shelf.slice_of("big", floats(3, SEGMENT_BYTES // 8))
    grid = [
        shelf.slice_of("m.grid", floats(4, 4, seed=1), Region((row, column), (2, 2)))
        for row in (0, 2)
        for column in (0, 2)
    ]
    own = [shelf.slice_of("m.mean", np.array(float(rank)), kind=SliceKind.BUFFER) for rank in range(2)]
    empty = shelf.slice_of("none", np.zeros((0, 2), "<i4"))
    index, problems = index_of([one, *grid[:2], own[0], empty], [other, *grid[2:], own[1], big, empty])
    assert problems == []
    return index


def test_slices_of_all_ranks_are_merged_and_read_by_name() -> None:
    shelf = ChunkShelf()
    one, other = halves(shelf)
    none = shelf.slice_of("none", np.zeros((0, 2), "<i4"))

    index, problems = index_of([other, none], [one])

    assert problems == []
    assert index.tensor_names == ("none", "w")
    entry = index.tensor("w")
    assert (entry.dtype, entry.shape, entry.kind, entry.raw_bytes) == ("float32", (4, 6), SliceKind.PARAMETER, 96)
    assert [(part.region, part.rank, part.segments) for part in entry.slices] == [
        (one.region, 1, one.segments),
        (other.region, 0, other.segments),
    ]
    assert index.tensor("none").slices == ()
    assert (index.find("w"), index.find("v"), index.find("x")) == (1, None, None)
    with pytest.raises(KeyError):
        index.tensor("v")


def test_the_order_in_which_manifests_come_does_not_matter() -> None:
    slices = halves(ChunkShelf())
    manifests = [manifest_of([record], rank=rank) for rank, record in enumerate(slices)]
    assert encode_index(build_index(manifests)[0]) == encode_index(build_index(manifests[::-1])[0])


def test_names_are_found_by_parts_and_by_plain_text() -> None:
    shelf = ChunkShelf()
    names = ["a", "a.b", "a.b.c", "a-b", "ab", "a\\.b", "a.c"]
    index, _ = index_of([shelf.slice_of(name, floats(1)) for name in names])
    assert index.names_with_prefix(["a"]) == ("a", "a.b", "a.b.c", "a.c")
    assert index.names_with_prefix(["a", "b"]) == ("a.b", "a.b.c")
    assert index.names_with_prefix(["a.b"]) == ("a\\.b",)
    assert index.names_with_prefix([]) == tuple(sorted(names))
    assert index.names_with_prefix(["z"]) == ()
    assert index.find_plain("a.b") == ("a.b", "a\\.b")


def test_ranks_that_disagree_are_named() -> None:
    shelf = ChunkShelf()
    good = shelf.slice_of("w", floats(8))
    other_dtype = dataclasses.replace(good, dtype="int32")
    other_shape = shelf.slice_of("w", floats(9))
    other_ndim = shelf.slice_of("w", floats(2, 4))
    assert index_of([good], [], [other_dtype])[1] == [("dtype_disagrees", "w", (0, 2))]
    assert index_of([good], [other_shape])[1] == [("shape_disagrees", "w", (0, 1))]
    assert index_of([good], [other_ndim])[1] == [("shape_disagrees", "w", (0, 1))]


def test_gaps_and_partial_overlaps_are_problems() -> None:
    shelf = ChunkShelf()
    one, _ = halves(shelf)
    across = shelf.slice_of("w", floats(4, 6), Region((1, 0), (3, 6)))
    assert index_of([one])[1] == [("coverage_gap", "w", ())]
    assert index_of([one], [], [across])[1] == [("overlap_conflict", "w", (0, 2))]
    known_to_all = shelf.slice_of("v", floats(4), Region((0,), (0,)))
    assert index_of([known_to_all], [known_to_all])[1] == [("coverage_gap", "v", ())]


def test_of_equal_replicas_the_lowest_ranks_is_kept() -> None:
    shelf = ChunkShelf()
    record = shelf.slice_of("w", floats(4))
    index, problems = index_of([], [record], [record], [dataclasses.replace(record, witness=True, segments=())])
    assert problems == []
    assert [part.rank for part in index.tensor("w").slices] == [1]


@pytest.mark.parametrize("kind", [SliceKind.PARAMETER, SliceKind.FROZEN, SliceKind.OPTIMIZER, SliceKind.TENSOR])
def test_replicas_that_must_be_equal_and_are_not_are_problems(kind: SliceKind) -> None:
    shelf = ChunkShelf()
    good = shelf.slice_of("w", floats(4), kind=kind)
    bad = shelf.slice_of("w", floats(4, seed=1), kind=kind)
    bad_witness = dataclasses.replace(bad, witness=True, segments=())
    assert index_of([good], [], [bad])[1] == [("overlap_conflict", "w", (0, 2))]
    assert index_of([bad_witness], [good])[1] == [("replicas_diverged", "w", (0, 1))]
    assert index_of([good], [bad_witness], [bad_witness])[1] == [("replicas_diverged", "w", (0, 1, 2))]


def test_a_difference_in_the_last_of_many_segments_is_seen() -> None:
    shelf = ChunkShelf()
    weights = floats(3, SEGMENT_BYTES // 4)
    changed = weights.copy()
    changed[2, -1] += 1
    witness = shelf.slice_of("w", changed, witness=True)
    assert index_of([shelf.slice_of("w", weights)], [witness])[1] == [("replicas_diverged", "w", (0, 1))]


def test_buffers_may_differ_and_then_each_ranks_own_is_kept() -> None:
    shelf = ChunkShelf()
    own = [shelf.slice_of("mean", floats(2, seed=seed), kind=SliceKind.BUFFER) for seed in (0, 0, 1)]
    index, problems = index_of(*([record] for record in own))
    assert problems == []
    assert index.divergent_buffers == ("mean",)
    assert [part.rank for part in index.tensor("mean").slices] == [0, 1, 2]
    index, problems = index_of([own[0]], [own[1]])
    assert (problems, index.divergent_buffers) == ([], ())
    assert [part.rank for part in index.tensor("mean").slices] == [0]


def test_big_values_are_kept_for_every_rank_that_stores_them() -> None:
    shelf = ChunkShelf()
    same, other = (shelf.slice_of("v", floats(2, seed=seed), kind=SliceKind.VALUE) for seed in (0, 1))
    index, problems = index_of([same], [same], [other])
    assert (problems, index.divergent_buffers) == ([], ())
    assert [part.rank for part in index.tensor("v").slices] == [0, 1, 2]


def test_problems_are_capped_and_counted() -> None:
    shelf = ChunkShelf()
    builder = IndexBuilder()
    builder.add(manifest_of([shelf.slice_of(f"w{row}", floats(4), Region((0,), (2,))) for row in range(150)]))
    _, problems = builder.finish()
    assert len(problems) == 100


def test_manifests_of_other_saves_and_second_manifests_are_refused() -> None:
    builder = IndexBuilder()
    builder.add(manifest_of([], rank=1))
    with pytest.raises(FormatError, match="two manifests"):
        builder.add(manifest_of([], rank=1))
    with pytest.raises(FormatError, match="world size"):
        builder.add(manifest_of([], rank=0, world_size=2))
    with pytest.raises(FormatError, match="at least one"):
        IndexBuilder().finish()


def test_one_digest_with_two_sizes_is_refused() -> None:
    shelf = ChunkShelf()
    one = shelf.slice_of("w", floats(4))
    lie = dataclasses.replace(one.segments[0], chunk=dataclasses.replace(one.segments[0].chunk, size_bytes=17))
    other = dataclasses.replace(one, name="v", segments=(lie,))
    with pytest.raises(FormatError, match="two sizes"):
        index_of([one], [other])


def test_an_index_round_trips() -> None:
    index = sample_index()
    data = encode_index(index)
    decoded = decode_index(data)
    assert decoded.tensor_names == index.tensor_names
    assert [decoded.tensor(name) for name in index.tensor_names] == [index.tensor(name) for name in index.tensor_names]
    assert decoded.divergent_buffers == index.divergent_buffers == ("m.mean",)
    assert (decoded.step, decoded.world_size) == (7, 4)
    assert encode_index(decoded) == data
    assert decode_tensor_table(data).names == index.tensor_names
    nothing, _ = index_of([])
    assert len(decode_index(encode_index(nothing))) == 0


DATA = encode_index(sample_index())


@settings(max_examples=100)
@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_flipped_byte_anywhere_is_refused(position: int, flip: int) -> None:
    damaged = bytearray(DATA)
    damaged[position] ^= flip
    with pytest.raises(FormatError):
        decode_index(bytes(damaged))
    with pytest.raises(FormatError):
        decode_index(DATA[:position])


def test_a_newer_index_is_too_new() -> None:
    newer = bytearray(DATA)
    newer[4] = 2
    with pytest.raises(VersionTooNew):
        decode_index(newer)


@settings(max_examples=300)
@given(st.data())
def test_any_change_inside_the_columns_is_valid_or_a_format_error(data: st.DataObject) -> None:
    """Whatever decodes must also be readable and plannable."""
    try:
        index = decode_index(altered(DATA, 5, data))
    except FormatError:
        return
    entries = [index.tensor(name) for name in index.tensor_names]
    assert sum(len(entry.slices) for entry in entries) == len(index)
    plan_load(index, LoadRequest.whole(index.tensor_names))
