"""The layout: every element of every parameter is some rank's, once, and padding is nobody's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardkeep.zero.layout import ALIGNMENT, Layout, LayoutKind, ParameterSpec, Slice

KINDS: tuple[LayoutKind, ...] = ("flat", "whole")
BYTES = {"torch.float32": 4, "torch.bfloat16": 2, "torch.float64": 8}

shapes = st.one_of(
    st.just(()),
    st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple),
    st.integers(0, 3).map(lambda size: (size,)),
    st.just((100_003,)),
)
specs = st.builds(
    lambda shape, dtype, trainable, run: ParameterSpec("", shape, dtype, BYTES[dtype], trainable, run),
    shapes,
    st.sampled_from(sorted(BYTES)),
    st.booleans(),
    st.integers(0, 2),
)


def named(found: list[ParameterSpec], first: int = 0) -> list[ParameterSpec]:
    return [replace(spec, name=f"p{number}") for number, spec in enumerate(found, start=first)]


def assert_covered(layout: Layout) -> None:
    """Every element of every parameter is in one slice of one rank; nothing else is."""
    seen: dict[int, list[tuple[int, int]]] = {index: [] for index in range(len(layout.specs))}
    for bucket in layout.buckets:
        assert bucket.bounds[0] == 0
        assert bucket.bounds[-1] == bucket.size
        assert list(bucket.bounds) == sorted(bucket.bounds)
        for rank in range(layout.world_size):
            begin, end = bucket.part(rank)
            for one in bucket.slices(rank):
                place = layout.place_of[one.parameter]
                assert layout.bucket_of[one.parameter] == bucket.index
                assert bucket.parameters[place] == one.parameter
                assert one.size > 0
                assert begin <= one.offset
                assert one.offset + one.size <= end
                assert one.offset == bucket.offsets[place] + one.start
                seen[one.parameter].append((one.start, one.stop))
    for index, spec in enumerate(layout.specs):
        ends = [0, *(stop for _, stop in sorted(seen[index]))]
        assert [start for start, _ in sorted(seen[index])] == ends[:-1]
        assert ends[-1] == spec.size


@given(
    st.lists(specs, max_size=12), st.integers(1, 17), st.sampled_from(KINDS), st.sampled_from([1, 64, 4096, 1 << 20])
)
@example([], 3, "flat", 64)
@example([ParameterSpec("", (0,), "torch.float32", 4)], 17, "flat", 64)
@example([ParameterSpec("", (), "torch.float32", 4)], 17, "whole", 1)
@settings(max_examples=150, deadline=None)
def test_every_element_is_one_ranks_and_padding_is_nobodys(
    found: list[ParameterSpec], world_size: int, kind: LayoutKind, bucket_bytes: int
) -> None:
    layout = Layout(kind, world_size, bucket_bytes)

    added = layout.append(named(found))

    assert added == layout.buckets
    assert [bucket.index for bucket in layout.buckets] == list(range(len(layout.buckets)))
    assert_covered(layout)
    for bucket in layout.buckets:
        members = [layout.specs[index] for index in bucket.parameters]
        assert {(one.dtype, one.trainable, one.run) for one in members} == {
            (bucket.dtype, bucket.trainable, bucket.run)
        }
        size_bytes = sum(one.size * one.item_bytes for one in members)
        assert size_bytes <= bucket_bytes or sum(one.size > 0 for one in members) == 1


@given(st.lists(specs, min_size=1, max_size=12), st.integers(1, 17))
@settings(max_examples=60, deadline=None)
def test_flat_parts_are_equal_and_aligned(found: list[ParameterSpec], world_size: int) -> None:
    layout = Layout("flat", world_size, 4096)
    layout.append(named(found))

    for bucket in layout.buckets:
        parts = {end - begin for begin, end in map(bucket.part, range(world_size))}
        assert len(parts) == 1
        assert parts.pop() % ALIGNMENT == 0
        assert bucket.size - sum(bucket.sizes) < world_size * ALIGNMENT


@given(st.lists(specs, min_size=1, max_size=12), st.integers(1, 17))
@settings(max_examples=60, deadline=None)
def test_whole_parameters_have_one_owner_and_no_padding(found: list[ParameterSpec], world_size: int) -> None:
    layout = Layout("whole", world_size, 4096)
    layout.append(named(found))

    for bucket in layout.buckets:
        assert bucket.size == sum(bucket.sizes)
        loads = [end - begin for begin, end in map(bucket.part, range(world_size))]
        assert max(loads) - min(loads) <= max(bucket.sizes)
        for rank in range(world_size):
            for one in bucket.slices(rank):
                assert (one.start, one.stop) == (0, layout.specs[one.parameter].size)


@given(st.lists(specs, max_size=6), st.lists(specs, max_size=6), st.integers(1, 5), st.sampled_from(KINDS), st.data())
@settings(max_examples=60, deadline=None)
def test_appended_parameters_get_buckets_of_their_own(
    first: list[ParameterSpec], later: list[ParameterSpec], world_size: int, kind: LayoutKind, data: st.DataObject
) -> None:
    layout = Layout(kind, world_size, 256)
    layout.append(named(first))
    before = list(layout.buckets)

    added = layout.append(named(later, first=len(first)))

    assert layout.buckets == [*before, *added]
    assert {index for bucket in added for index in bucket.parameters} == set(range(len(first), len(first) + len(later)))
    assert_covered(layout)
    if layout.buckets:
        bucket = data.draw(st.sampled_from(layout.buckets))
        begin = data.draw(st.integers(0, bucket.size))
        end = data.draw(st.integers(begin, bucket.size))
        assert bucket.cut(begin, end) == tuple(cut_naively(layout, bucket.index, begin, end))


def cut_naively(layout: Layout, index: int, begin: int, end: int) -> list[Slice]:
    bucket, found = layout.buckets[index], []
    for parameter, offset, size in zip(bucket.parameters, bucket.offsets, bucket.sizes, strict=True):
        inside = [at - offset for at in range(max(begin, offset), min(end, offset + size))]
        if inside:
            found.append(Slice(parameter, inside[0], inside[-1] + 1, offset + inside[0]))
    return found


def test_buckets_are_filled_from_the_last_parameter_on() -> None:
    layout = Layout("flat", 2, 64)

    layout.append(named([ParameterSpec("", (8,), "torch.float32", 4) for _ in range(4)]))

    assert [bucket.parameters for bucket in layout.buckets] == [(3, 2), (1, 0)]


def test_fault_10_a_parameter_as_large_as_a_bucket_fills_one() -> None:
    layout = Layout("flat", 2, 64)

    layout.append(named([ParameterSpec("", (size,), "torch.float32", 4) for size in (1, 16, 1)]))

    assert [bucket.parameters for bucket in layout.buckets] == [(2,), (1,), (0,)]


BASE = [
    ParameterSpec("a", (2, 3), "torch.float32", 4),
    ParameterSpec("b", (3, 2), "torch.float32", 4),
]


@pytest.mark.parametrize(
    "other",
    [
        BASE[::-1],
        BASE[:1],
        [replace(BASE[0], name="c"), BASE[1]],
        [replace(BASE[0], shape=(6,)), BASE[1]],
        [replace(BASE[0], dtype="torch.float16"), BASE[1]],
        [replace(BASE[0], trainable=False), BASE[1]],
        [replace(BASE[0], run=1), BASE[1]],
    ],
    ids=["order", "count", "name", "shape", "dtype", "trainable", "run"],
)
def test_digests_differ_where_parameters_do(other: list[ParameterSpec]) -> None:
    layouts = [Layout("flat", 2, 64), Layout("flat", 2, 64), Layout("flat", 2, 64)]
    for layout, found in zip(layouts, [BASE, BASE, other], strict=True):
        layout.append(found)

    assert layouts[0].digest() == layouts[1].digest()
    assert layouts[0].digest() != layouts[2].digest()
    assert len(layouts[0].digest()) == 16


@pytest.mark.parametrize("other", [Layout("whole", 2, 64), Layout("flat", 3, 64), Layout("flat", 2, 65)])
def test_digests_differ_where_the_division_does(other: Layout) -> None:
    layout = Layout("flat", 2, 64)
    layout.append(BASE)
    other.append(BASE)

    assert layout.digest() != other.digest()
