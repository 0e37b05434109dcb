from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.format import box_cuts
from shardkeep.format.boxes import Boxes, boxes_of, check_corners, corners_of
from shardkeep.format.coverage import CoverageReport, find_coverage_problems
from shardkeep.format.regions import Region, regions_of_flat_range
from shardkeep.format.tensor_table import Shapes, shapes_of
from tests.unit.format.builders import as_slices

Held = Sequence[tuple[int, Region]]


def boxes_from(shapes: Sequence[tuple[int, ...]], held: Held) -> tuple[Shapes, Boxes]:
    table = shapes_of(shapes)
    tensor = np.array([row for row, _ in held], np.int64)
    offsets = np.array([offset for _, region in held for offset in region.offsets], np.int64)
    sizes = np.array([size for _, region in held for size in region.sizes], np.int64)
    return table, boxes_of(table, tensor, check_corners(table, tensor, offsets, sizes))


def report_of(shapes: Sequence[tuple[int, ...]], held: Held, roots: Sequence[int] | None = None) -> CoverageReport:
    table, boxes = boxes_from(shapes, held)
    columns = None if roots is None else np.array([(root, 0) for root in roots], np.uint64).reshape(-1, 2)
    return find_coverage_problems(table, boxes, columns)


@st.composite
def regions_of(draw: st.DrawFn, shape: tuple[int, ...]) -> Region:
    offsets = [draw(st.integers(0, size - 1)) for size in shape]
    return Region(
        tuple(offsets),
        tuple(draw(st.integers(1, size - offset)) for size, offset in zip(shape, offsets, strict=True)),
    )


@st.composite
def partitions(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Region]:
    """Guillotine cuts, and sometimes a flat range cut out of one part."""
    parts = [Region.whole(shape)]
    for _ in range(draw(st.integers(0, 6))):
        part = parts.pop(draw(st.integers(0, len(parts) - 1)))
        at = draw(st.integers(0, part.volume))
        if draw(st.booleans()) or not shape:
            for start, stop in ((0, at), (at, part.volume)):
                parts += [box.shifted(part.offsets) for box in regions_of_flat_range(part.sizes, start, stop)]
            continue
        axis = draw(st.integers(0, len(shape) - 1))
        middle = draw(st.integers(0, part.sizes[axis]))
        for start, size in ((0, middle), (middle, part.sizes[axis] - middle)):
            if size:
                move = tuple(start if k == axis else 0 for k in range(len(shape)))
                sizes = tuple(size if k == axis else part.sizes[k] for k in range(len(shape)))
                parts.append(Region(part.offsets, sizes).shifted(move))
    return parts


@st.composite
def holdings(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[tuple[int, Region]]]:
    shapes, held = [], []
    for row in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(1, 5), max_size=3)))
        parts = draw(partitions(shape))
        if draw(st.booleans()):
            parts = parts[1:]
        if draw(st.booleans()):
            parts.append(draw(regions_of(shape)))
        shapes.append(shape)
        held += [(row, part) for part in parts]
    return shapes, draw(st.permutations(held))


@settings(max_examples=150)
@given(holdings())
def test_problems_are_those_of_a_model_that_paints_every_element(
    case: tuple[list[tuple[int, ...]], list[tuple[int, Region]]],
) -> None:
    shapes, held = case
    overlapping, deficient = set(), set()
    for row, shape in enumerate(shapes):
        painted = np.zeros(shape, int)
        for region in {region for tensor, region in held if tensor == row}:
            painted[as_slices(region)] += 1
        if (painted > 1).any():
            overlapping.add(row)
        elif (painted == 0).any():
            deficient.add(row)

    report = report_of(shapes, held)

    assert {problem.tensor for problem in report.problems if problem.kind == "overlap"} == overlapping
    assert {problem.tensor for problem in report.problems if problem.kind == "gap"} == deficient
    assert report.total == len(report.problems) == len(overlapping) + len(deficient)
    for problem in report.problems:
        assert problem.region is not None
        assert not problem.region.is_empty
        if problem.kind == "gap":
            assert problem.region.within(shapes[problem.tensor])
            assert all(problem.region.intersection(part) is None for row, part in held if row == problem.tensor)
        else:
            one, other = (held[row][1] for row in problem.slices)
            assert one.intersection(other) == problem.region


@given(st.data(), st.lists(st.integers(1, 5), max_size=4).map(tuple))
def test_corners_and_first_last_say_the_same(data: st.DataObject, shape: tuple[int, ...]) -> None:
    region = data.draw(regions_of(shape))
    table, boxes = boxes_from([(2, 2), shape], [(1, region)])
    assert Region(*corners_of(table, boxes).region_columns(0)) == region


def test_a_region_with_two_contents_is_a_conflict() -> None:
    held = [(0, Region((0,), (4,))), (0, Region((4,), (4,))), (0, Region((0,), (4,)))]
    assert report_of([(8,)], held, [1, 2, 1]).problems == ()
    (problem,) = report_of([(8,)], held, [1, 2, 3]).problems
    assert (problem.kind, problem.region, problem.slices) == ("conflict", Region((0,), (4,)), (0, 2))


def test_tensors_nobody_holds_are_gaps_unless_they_have_no_elements() -> None:
    report = report_of([(2, 3), (0, 3), ()], [])
    assert [(problem.kind, problem.tensor, problem.region) for problem in report.problems] == [
        ("gap", 0, Region((0, 0), (2, 3))),
        ("gap", 2, Region((), ())),
    ]


def test_the_list_is_capped_and_the_count_is_not() -> None:
    report = report_of([(2,)] * 250, [])
    assert (len(report.problems), report.total) == (100, 250)


PINWHEEL = [
    Region((0, 0), (2, 3)),
    Region((0, 3), (3, 2)),
    Region((3, 2), (2, 3)),
    Region((2, 0), (3, 2)),
    Region((2, 2), (1, 1)),
]


def test_interlocking_slices_without_any_cut_are_compared_pair_by_pair() -> None:
    assert report_of([(5, 5)], [(0, part) for part in PINWHEEL]).problems == ()
    (problem,) = report_of([(5, 5)], [(0, part) for part in PINWHEEL[:4]]).problems
    assert problem.region == Region((2, 2), (1, 1))


def test_too_many_pairs_are_a_clear_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_cuts, "MAX_PAIRS", 0)
    (problem,) = report_of([(5, 5)], [(0, part) for part in PINWHEEL]).problems
    assert problem.kind == "too_complex"


@pytest.mark.parametrize("layout", ["rows", "columns", "grid", "flat in columns"])
def test_the_usual_layouts_of_many_ranks_are_covered(layout: str) -> None:
    ranks, shape = range(64), (64, 64)
    parts = {
        "rows": [Region((rank, 0), (1, 64)) for rank in ranks],
        "columns": [Region((0, rank), (64, 1)) for rank in ranks],
        "grid": [Region((rank // 8 * 8, rank % 8 * 8), (8, 8)) for rank in ranks],
        "flat in columns": [
            box.shifted((0, column * 16))
            for column in range(4)
            for rank in range(16)
            for box in regions_of_flat_range((64, 16), rank * 64 + 5 * (rank > 0), rank * 64 + 64 + 5 * (rank < 15))
        ],
    }[layout]
    held = [(row, part) for part in parts for row in range(3)]
    assert report_of([shape] * 3, held).problems == ()
    assert [problem.kind for problem in report_of([shape] * 3, held[1:]).problems] == ["gap"]
