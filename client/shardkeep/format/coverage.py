"""Whether the slices of many tensors cover each shape once: no gap, no partial overlap, no two contents of one region.

Boxes are told apart by cuts: sorted along the row-major order or along one axis, every place where all boxes before end
before all boxes after begin separates two groups that cannot overlap. Sharding by rows, by columns, in grids, in
flat ranges and mixtures of these fall apart into single boxes within a few sorts, over all tensors at once. What
cannot be cut apart is compared pair by pair, up to a limit. Once boxes are disjoint, their volumes tell of gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep.format.box_cuts import find_overlaps
from shardkeep.format.boxes import Boxes, corner_volumes, corners_of, element_bases
from shardkeep.format.columns import Flags, Ints
from shardkeep.format.coverage_gaps import find_gap
from shardkeep.format.regions import Region
from shardkeep.format.tensor_table import Shapes

MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class CoverageProblem:
    """One finding about the tensor in row `tensor`.

    `kind`: 'gap' (`region` is held by no slice), 'conflict' (two slices of `region` have different fingerprints),
    'overlap' (two slices overlap without being the same; `region` is their common part), or 'too_complex' (the slices
    interlock so that telling them apart costs too much). `slices` are rows of the input.
    """

    kind: str
    tensor: int
    region: Region | None
    slices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """At most `MAX_PROBLEMS` problems, at most one overlap and one gap a tensor, and how many there are in all."""

    problems: tuple[CoverageProblem, ...]
    total: int


def find_coverage_problems(
    shapes: Shapes,
    boxes: Boxes,
    roots: npt.NDArray[np.uint64] | None = None,
    *,
    volumes: Ints | None = None,
    max_problems: int = MAX_PROBLEMS,
) -> CoverageReport:
    """Check that the non-empty `boxes` cover every tensor of `shapes`.

    `roots` has the fingerprint root of each box as a row of two u64: boxes of the same region must have the same.
    Without it the same region may repeat at will. `volumes` saves working out the boxes' elements where they are known.
    Time grows as n log n.
    """
    rows = _sorted_rows(shapes, boxes)
    is_new = _starts_new_region(boxes, rows)
    problems: list[CoverageProblem] = []
    total = 0
    if roots is not None:
        conflicts = _conflicts(roots, rows, is_new)
        total += len(conflicts)
        for one, other in conflicts[:max_problems].tolist():
            region = region_of(shapes, boxes, one)
            problems.append(CoverageProblem("conflict", int(boxes.tensor[one]), region, (one, other)))
    unique_rows = rows[is_new]
    unique = boxes.take(unique_rows)
    overlaps = find_overlaps(shapes, unique)
    total += len(overlaps.pairs) + len(overlaps.too_complex)
    for one, other in overlaps.pairs[: max(0, max_problems - len(problems))].tolist():
        common = region_of(shapes, unique, one).intersection(region_of(shapes, unique, other))
        pair = (int(unique_rows[one]), int(unique_rows[other]))
        problems.append(CoverageProblem("overlap", int(unique.tensor[one]), common, pair))
    problems += [
        CoverageProblem("too_complex", tensor, None, ())
        for tensor in overlaps.too_complex[: max(0, max_problems - len(problems))].tolist()
    ]
    unique_volumes = corner_volumes(corners_of(shapes, unique)) if volumes is None else volumes[unique_rows]
    deficient = _deficient_tensors(shapes, unique, unique_volumes, overlaps.tensors())
    total += len(deficient)
    for tensor in deficient[: max(0, max_problems - len(problems))].tolist():
        problems.append(CoverageProblem("gap", tensor, _gap_of(shapes, unique, tensor), ()))
    return CoverageReport(tuple(problems), total)


def region_of(shapes: Shapes, boxes: Boxes, row: int) -> Region:
    """One box as an object."""
    return Region(*corners_of(shapes, boxes.take(np.array([row], np.int64))).region_columns(0))


def _sorted_rows(shapes: Shapes, boxes: Boxes) -> Ints:
    """Rows by tensor, first, last; a stable sort, so equal regions keep their order."""
    key = element_bases(shapes)[boxes.tensor] + boxes.first
    if _ascends(key, boxes.last):
        return np.arange(len(boxes), dtype=np.int64)
    return np.lexsort((boxes.last, key))


def _ascends(key: Ints, last: Ints) -> bool:
    return bool(((key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (last[1:] >= last[:-1]))).all())


def _starts_new_region(boxes: Boxes, rows: Ints) -> Flags:
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = False
    for column in (boxes.tensor, boxes.first, boxes.last):
        ordered = column[rows]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    return is_new


def _conflicts(roots: npt.NDArray[np.uint64], rows: Ints, is_new: Flags) -> Ints:
    """Pairs (first row of the region, differing row)."""
    leaders = rows[np.flatnonzero(is_new)[np.cumsum(is_new) - 1]] if len(rows) else rows
    differs = (roots[rows] != roots[leaders]).any(axis=1)
    return np.stack((leaders[differs], rows[differs]), axis=1)


def _deficient_tensors(shapes: Shapes, boxes: Boxes, volumes: Ints, overlapping: Ints) -> Ints:
    """Tensors whose boxes are disjoint and hold too few elements."""
    covered = np.zeros(len(shapes), np.int64)
    np.add.at(covered, boxes.tensor, volumes)
    is_deficient = covered < shapes.volumes
    is_deficient[overlapping] = False
    return np.flatnonzero(is_deficient)


def _gap_of(shapes: Shapes, boxes: Boxes, tensor: int) -> Region:
    low, high = np.searchsorted(boxes.tensor, [tensor, tensor + 1]).tolist()
    corners = corners_of(shapes, boxes.take(np.arange(low, high, dtype=np.int64)))
    matrix = (high - low, int(shapes.ndims[tensor]))
    return find_gap(shapes.shape(tensor), corners.offsets.reshape(matrix), corners.sizes.reshape(matrix))
