"""A stored tensor that is read where it is indexed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.format.regions import Region
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.extensions import leaf_adapters
from shardkeep.store.reading import ReadRequest


class LazyTensor:
    """Like a numpy array in shape, indexing and conversion; indexing reads only the segments that hold what is wanted.

    Gives torch tensors if the program has imported torch, else numpy arrays; numpy has no bfloat16 or float8, and
    asking for one of those without torch is a ConfigurationError. Takes ints, slices and an ellipsis.
    """

    def __init__(self, info: TensorInfo, read: Callable[[Sequence[ReadRequest]], None]) -> None:
        self.info = info
        self._read = read

    @property
    def name(self) -> str:
        """The stored name."""
        return self.info.name

    @property
    def dtype(self) -> str:
        """The dtype's name, without `torch.`."""
        return self.info.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return tuple(self.info.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.info.shape)

    @property
    def nbytes(self) -> int:
        """The raw bytes of all of it."""
        return self.info.raw_bytes

    def __len__(self) -> int:
        if not self.info.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.info.shape[0]

    def __repr__(self) -> str:
        return f"LazyTensor({self.name!r}, dtype={self.dtype}, shape={self.shape})"

    def __getitem__(self, index: Any) -> Any:
        """The indexed part, as a tensor or array of its own."""
        plan = plan_index(index, self.shape)
        return self._array(plan.region)[plan.within]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[...], dtype=dtype)

    def read(self) -> Any:
        """All of it."""
        return self._array(Region.whole(self.shape))

    def _array(self, region: Region) -> Any:
        array, out = leaf_adapters()[0].create(self.dtype, region.sizes)
        if not region.is_empty:
            self._read([ReadRequest(self.name, region, out)])
        return array


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The box to read, and the index within it that gives what was asked for."""

    region: Region
    within: tuple[int | slice, ...]


def plan_index(index: Any, shape: tuple[int, ...]) -> IndexPlan:
    """The box that ints, slices and an ellipsis need; steps other than 1 are taken from the box read."""
    items = _expanded(index if isinstance(index, tuple) else (index,), len(shape))
    offsets, sizes, within = [], [], []
    for axis, (item, size) in enumerate(zip(items, shape, strict=True)):
        if isinstance(item, slice):
            chosen = range(*item.indices(size))
            offset = min(chosen[0], chosen[-1]) if chosen else 0
            length = abs(chosen[-1] - chosen[0]) + 1 if chosen else 0
            within.append(_step_within(chosen))
        else:
            position = int(item)
            if not -size <= position < size:
                raise IndexError(f"index {position} is out of range for axis {axis} of size {size}")
            offset, length = position % size, 1
            within.append(0)
        offsets.append(offset)
        sizes.append(length)
    return IndexPlan(Region(tuple(offsets), tuple(sizes)), tuple(within))


def _step_within(chosen: range) -> int | slice:
    if chosen.step < 0:
        raise IndexError("a step below zero is not supported; reverse what was read instead")
    return slice(None, None, chosen.step)


def _expanded(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    for item in items:
        if not (item is Ellipsis or isinstance(item, slice | int | np.integer)) or isinstance(item, bool):
            raise IndexError(
                f"a stored tensor is indexed with ints, slices and an ellipsis, not with {type(item).__name__}"
            )
    ellipses = sum(item is Ellipsis for item in items)
    given = len(items) - ellipses
    if ellipses > 1 or given > ndim:
        raise IndexError(f"too many indices for a tensor of {ndim} dimensions")
    if not ellipses:
        items = (*items, Ellipsis)
    at = next(position for position, item in enumerate(items) if item is Ellipsis)
    return (*items[:at], *(slice(None) for _ in range(ndim - given)), *items[at + 1 :])
