"""Columns of integers: packed at the narrowest width for storage, 64 bits wide in memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardkeep.errors import FormatError
from shardkeep.format.buffers import Buffer

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

_UNSIGNED: dict[int, str] = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}
_SIGNED: dict[int, str] = {1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}


def pack_unsigned(column: npt.NDArray[np.integer] | npt.NDArray[np.bool_]) -> bytes:
    """One byte with the width (1, 2, 4 or 8), then the values, little-endian. All must be in 0 to 2**63-1."""
    highest = int(column.max(initial=0))
    width = next(width for width in _UNSIGNED if highest < 1 << 8 * width)
    return bytes([width]) + column.astype(_UNSIGNED[width]).tobytes()


def pack_signed(column: Ints) -> bytes:
    """As `pack_unsigned`, in two's complement."""
    lowest, highest = int(column.min(initial=0)), int(column.max(initial=0))
    width = next(width for width in _SIGNED if -(1 << 8 * width - 1) <= lowest and highest < 1 << 8 * width - 1)
    return bytes([width]) + column.astype(_SIGNED[width]).tobytes()


def unpack_unsigned(data: Buffer, count: int | None, what: str) -> Ints:
    """The values of `pack_unsigned`; FormatError unless there are `count` (any number if None) below 2**63."""
    column = _unpack(data, count, what, _UNSIGNED)
    if column.dtype.itemsize == 8 and column.size and int(column.max()) >= 1 << 63:
        raise FormatError(f"column {what!r} holds a number above 2**63-1")
    return column.astype(np.int64)


def unpack_signed(data: Buffer, count: int | None, what: str) -> Ints:
    """The values of `pack_signed`; FormatError unless there are `count` (any number if None)."""
    return _unpack(data, count, what, _SIGNED).astype(np.int64)


def unpack_bytes(data: Buffer, count: int | None, row_bytes: int, what: str) -> Bytes:
    """`data` as rows of `row_bytes` bytes, uncopied; FormatError unless there are `count` (any number if None)."""
    if len(data) % row_bytes or (count is not None and len(data) != count * row_bytes):
        raise FormatError(f"column {what!r} has {len(data)} bytes; {count} rows of {row_bytes} bytes were expected")
    return np.frombuffer(data, np.uint8).reshape(-1, row_bytes)


def range_positions(starts: Ints, counts: Ints) -> Ints:
    """The concatenated ranges `starts[i] : starts[i] + counts[i]`, as one array of positions."""
    if len(counts) and int(counts.min()) == int(counts.max()) == 1:
        return starts.astype(np.int64)
    before = np.cumsum(counts) - counts
    positions: Ints = np.repeat(starts - before, counts)
    positions += np.arange(len(positions), dtype=np.int64)
    return positions


def starts_of(counts: Ints) -> Ints:
    """Where each run begins when runs of `counts` lie one after the other; one more entry gives the end of the last."""
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def frozen(column: npt.NDArray[np.generic]) -> None:
    """Make a column read-only, as the frozen dataclass that holds it promises."""
    column.flags.writeable = False


def _unpack(data: Buffer, count: int | None, what: str, widths: dict[int, str]) -> npt.NDArray[np.integer]:
    width = data[0] if len(data) else 0
    if width not in widths:
        raise FormatError(f"column {what!r} does not begin with a width of 1, 2, 4 or 8")
    if (len(data) - 1) % width or (count is not None and len(data) - 1 != count * width):
        raise FormatError(f"column {what!r} has {len(data) - 1} bytes of width {width}; {count} rows were expected")
    column: npt.NDArray[np.integer] = np.frombuffer(data, widths[width], offset=1)
    return column
