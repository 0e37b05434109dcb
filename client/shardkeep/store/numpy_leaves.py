"""numpy arrays as leaves of plain states."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.format.dtypes import DTYPE_NAMES, numpy_dtype
from shardkeep.format.regions import Region
from shardkeep.store.extensions import Leaf, LeafDestination, LeafPiece, LeafTarget

_NAMES: Final = {dtype: name for name in DTYPE_NAMES if (dtype := numpy_dtype(name)) is not None}


class NumpyLeaves:
    """A `LeafAdapter`. Arrays of a dtype that tensors cannot have (text, dates, records) are left to be values."""

    def accepts(self, value: object) -> bool:
        """Whether it is an array of a dtype that tensors can have."""
        return isinstance(value, np.ndarray) and value.dtype.newbyteorder("<") in _NAMES

    def leaf(self, value: object) -> Leaf:
        """The whole array; big-endian ones are stored little-endian."""
        array = _array(value)
        stored = array.dtype.newbyteorder("<")

        def fill(start: int, out: memoryview) -> None:
            item = stored.itemsize
            first, count = start // item, out.nbytes // item
            np.frombuffer(out, stored)[:] = _flat(array, first, first + count)

        return Leaf(_NAMES[stored], array.shape, (LeafPiece(Region.whole(array.shape), fill),))

    def target(self, value: object) -> LeafTarget:
        """The array's own memory where it is row-major and little-endian."""
        array = _array(value)
        if not array.flags.writeable:
            raise StateError(f"an array of shape {array.shape} is read-only, so nothing can be loaded into it")
        stored = array.dtype.newbyteorder("<")
        is_direct = array.flags.c_contiguous and array.dtype == stored
        out = _bytes_of(array) if is_direct and array.size else None

        def assign(data: memoryview, dtype: str) -> None:
            array[...] = np.frombuffer(data, _numpy_dtype(dtype)).reshape(array.shape)

        return LeafTarget(_NAMES[stored], array.shape, (LeafDestination(Region.whole(array.shape), out, assign),))

    def create(self, dtype: str, shape: tuple[int, ...]) -> tuple[object, memoryview]:
        """An array; ConfigurationError for dtypes that numpy lacks (bfloat16, float8, ...)."""
        array = np.empty(shape, _numpy_dtype(dtype))
        return array, _bytes_of(array) if array.size else memoryview(bytearray())


def _array(value: object) -> npt.NDArray[Any]:
    assert isinstance(value, np.ndarray)
    return value


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _flat(array: npt.NDArray[Any], start: int, stop: int) -> npt.NDArray[Any]:
    """Row-major elements `start` to `stop`, without copying an array that lies in memory like that."""
    return array.reshape(-1)[start:stop] if array.flags.c_contiguous else array.flat[start:stop]


def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    found = numpy_dtype(name)
    if found is None:
        raise ConfigurationError(
            f"numpy has no {name}: import torch first to get tensors, or read the raw bytes with Checkpoint.read()"
        )
    return found
