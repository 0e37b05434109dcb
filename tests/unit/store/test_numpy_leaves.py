"""numpy arrays become bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.store.numpy_leaves import NumpyLeaves

LEAVES = NumpyLeaves()


@pytest.mark.parametrize("array", [
    np.arange(24, dtype="<f4").reshape(2, 3, 4), np.arange(24, dtype=">i2").reshape(4, 6)[::-1, ::2], np.array(7),
    np.asfortranarray(np.ones((3, 4))), np.array([True, False]), np.array([1 + 2j]),
    np.broadcast_to(np.int8(3), (5, 2)),
])  # fmt: skip
def test_parts_and_the_whole_are_the_row_major_little_endian_bytes(array: np.ndarray[Any, Any]) -> None:
    expected = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    (piece,) = LEAVES.leaf(array).pieces
    out = bytearray(len(expected))
    half = len(out) // 2 // array.itemsize * array.itemsize
    piece.fill(0, memoryview(out)[:half])
    piece.fill(half, memoryview(out)[half:])
    assert bytes(out) == expected


def test_a_row_major_array_is_read_into_directly_and_others_are_assigned() -> None:
    direct = LEAVES.target(np.zeros((2, 3), "<f4"))
    assert direct.destinations[0].out is not None
    strided = np.zeros((6,), "<f4")[::2]
    target = LEAVES.target(strided)
    assert target.destinations[0].out is None
    target.destinations[0].assign(np.arange(3, dtype="<i8").view(np.uint8).data, "int64")
    np.testing.assert_array_equal(strided, [0, 1, 2])


def test_a_read_only_array_cannot_be_loaded() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(StateError, match="read-only"):
        LEAVES.target(array)


def test_only_dtypes_that_tensors_have_are_accepted() -> None:
    assert LEAVES.accepts(np.zeros(1, np.uint64))
    assert not any(
        map(LEAVES.accepts, [np.array(["x"]), np.zeros(1, "M8[s]"), np.zeros(1, "f4,i4"), np.float64(1), [1.0]])
    )


def test_a_dtype_that_numpy_lacks_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="import torch first"):
        LEAVES.create("float8_e4m3fn", (3,))
    array, out = LEAVES.create("float16", (2, 2))
    assert isinstance(array, np.ndarray)
    assert out.nbytes == 8
