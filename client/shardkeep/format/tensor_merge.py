"""One tensor table out of many ranks': the same name must have the same dtype and shape everywhere."""

from __future__ import annotations

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.columns import Flags, Ints, range_positions
from shardkeep.format.dtypes import dtype_coded
from shardkeep.format.index_problems import DTYPE_DISAGREES, SHAPE_DISAGREES, ProblemList
from shardkeep.format.tensor_table import Shapes, TensorTable, make_shapes, make_tensor_table

MAX_TENSORS = 1 << 24


class TensorMerge:
    """Numbers tensors in order of arrival; `finish` gives the sorted table and what the numbers became."""

    def __init__(self, problems: ProblemList) -> None:
        self._problems = problems
        self._numbers: dict[str, int] = {}
        self._first_ranks: list[int] = []
        self._dtype_codes = np.empty(0, np.int64)
        self._kinds = np.empty(0, np.int64)
        self._shapes = make_shapes(np.empty(0, np.int64), np.empty(0, np.int64))
        self._previous: tuple[TensorTable, Ints, Flags] | None = None

    def add(self, table: TensorTable, rank: int) -> tuple[Ints, Flags]:
        """The number of each tensor of one rank's table, and whether it agrees with the ranks before."""
        if self._previous is not None and _same_tables(self._previous[0], table):
            return self._previous[1], self._previous[2]
        numbers = self._number(table, rank)
        agrees = self._compare(table, numbers, rank)
        # PARAMETER before BUFFER: where ranks call a tensor by two kinds, the stricter rule holds.
        self._kinds[numbers] = np.minimum(self._kinds[numbers], table.kinds)
        self._previous = (table, numbers, agrees)
        return numbers, agrees

    def finish(self) -> tuple[TensorTable, Ints]:
        """The table sorted by name, and the row in it for each number."""
        names = list(self._numbers)
        order = sorted(range(len(names)), key=names.__getitem__)
        rows = np.empty(len(names), np.int64)
        rows[order] = np.arange(len(names))
        numbers = np.array(order, np.int64)
        table = make_tensor_table(
            tuple(names[number] for number in order),
            self._dtype_codes[numbers],
            self._kinds[numbers],
            _take_shapes(self._shapes, numbers),
        )
        return table, rows

    def _number(self, table: TensorTable, rank: int) -> Ints:
        known = len(self._numbers)
        numbers = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in table.names], np.int64)
        if len(self._numbers) > MAX_TENSORS:
            raise FormatError(f"a checkpoint has more than {MAX_TENSORS} tensors")
        is_new = numbers >= known
        if is_new.any():
            rows = np.flatnonzero(is_new)
            new = _take_shapes(table.shapes, rows)
            self._shapes = make_shapes(
                np.concatenate((self._shapes.ndims, new.ndims)), np.concatenate((self._shapes.dims, new.dims))
            )
            self._dtype_codes = np.concatenate((self._dtype_codes, table.dtype_codes[rows]))
            self._kinds = np.concatenate((self._kinds, table.kinds[rows]))
            self._first_ranks += [rank] * len(rows)
        return numbers

    def _compare(self, table: TensorTable, numbers: Ints, rank: int) -> Flags:
        same_dtype = self._dtype_codes[numbers] == table.dtype_codes
        same_shape = self._shapes.ndims[numbers] == table.shapes.ndims
        rows = np.flatnonzero(same_shape & (table.shapes.ndims > 0))
        counts = table.shapes.ndims[rows]
        mine = self._shapes.dims[range_positions(self._shapes.dim_starts[numbers[rows]], counts)]
        theirs = table.shapes.dims[range_positions(table.shapes.dim_starts[rows], counts)]
        same_shape[np.repeat(rows, counts)[mine != theirs]] = False
        agrees: Flags = same_dtype & same_shape
        for row in np.flatnonzero(~agrees).tolist():
            self._report(table, row, int(numbers[row]), rank, is_dtype=not same_dtype[row])
        return agrees

    def _report(self, table: TensorTable, row: int, number: int, rank: int, *, is_dtype: bool) -> None:
        other = self._first_ranks[number]
        if is_dtype:
            mine, theirs = (dtype_coded(int(code)).name for code in (table.dtype_codes[row], self._dtype_codes[number]))
            code, what = DTYPE_DISAGREES, "dtype"
        else:
            mine, theirs = str(table.shapes.shape(row)), str(self._shapes.shape(number))
            code, what = SHAPE_DISAGREES, "shape"
        detail = f"rank {other} has {what} {theirs}, rank {rank} has {mine}"
        self._problems.add(code, table.names[row], (other, rank), detail)


def _same_tables(one: TensorTable, other: TensorTable) -> bool:
    return (
        one.names == other.names
        and np.array_equal(one.dtype_codes, other.dtype_codes)
        and np.array_equal(one.kinds, other.kinds)
        and np.array_equal(one.shapes.ndims, other.shapes.ndims)
        and np.array_equal(one.shapes.dims, other.shapes.dims)
    )


def _take_shapes(shapes: Shapes, rows: Ints) -> Shapes:
    dims = shapes.dims[range_positions(shapes.dim_starts[rows], shapes.ndims[rows])]
    return make_shapes(shapes.ndims[rows], dims)
