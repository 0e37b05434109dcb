"""Dividing a budget: the parts fill it, and the bytes an error asks for are enough."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import ConfigurationError
from shardkeep.zero.budget import Budget
from shardkeep.zero.layout import Layout, LayoutKind, ParameterSpec

KINDS: tuple[LayoutKind, ...] = ("flat", "whole")
SIZES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3)), min_size=1, max_size=8)


def specs_of(sizes: list[tuple[int, int]]) -> list[ParameterSpec]:
    """(elements, run) of each."""
    return [ParameterSpec(f"p{place}", (size,), "torch.float32", 4, run=run) for place, (size, run) in enumerate(sizes)]


@given(
    sizes=SIZES,
    world_size=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    gathers=st.booleans(),
    wire_bytes=st.sampled_from([None, 2, 4]),
    more=st.integers(0, 1 << 20),
    wanted=st.integers(1, 1 << 22),
)
def test_the_bytes_an_error_asks_for_are_enough_and_are_divided(
    sizes: list[tuple[int, int]],
    world_size: int,
    kind: LayoutKind,
    gathers: bool,
    wire_bytes: int | None,
    more: int,
    wanted: int,
) -> None:
    specs = specs_of(sizes)
    with pytest.raises(ConfigurationError) as raised:
        Budget(1, world_size, kind, gathers, wire_bytes).bucket_bytes(wanted, specs)
    needed = int(re.findall(r"at least (\d+)", str(raised.value))[0])

    budget = Budget(needed + more, world_size, kind, gathers, wire_bytes)
    layout = Layout(kind, world_size, budget.bucket_bytes(wanted, specs))
    layout.append(specs)
    division = budget.divide(layout.buckets, layout.specs)

    assert division.gathered_bytes + division.gradient_bytes + division.tile_bytes == needed + more
    assert division.tile_elements * 16 * 3 <= max(division.tile_bytes, 3 * 4096)
    assert (division.gathered_bytes > 0) == (gathers and any(size and run for size, run in sizes))


def test_tiles_are_no_larger_than_reading_in_one_go_gains_from() -> None:
    budget = Budget(1 << 40, 1, "flat", gathers=False, wire_bytes=None)
    layout = Layout("flat", 1, budget.bucket_bytes(1 << 22, specs_of([(1000, 0)])))
    buckets = layout.append(specs_of([(1000, 0)]))

    assert budget.divide(buckets, layout.specs).tile_elements == 4 << 20


def test_a_bucket_is_cut_to_what_units_and_tiles_leave() -> None:
    specs = specs_of([(1000, 1)] * 4)
    budget = Budget(64_000, 2, "flat", gathers=True, wire_bytes=None)

    gathered, tiles, buffers = 2 * 16_000, 3 * 4096, 4
    assert budget.bucket_bytes(1 << 22, specs) == (64_000 - gathered - tiles) // (2 * buffers)
