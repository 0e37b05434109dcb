"""What one rank owns of a bucket: gradient, master and the optimizer's state; in memory, or on disk by tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from shardkeep.zero.collectives import PendingSum
from shardkeep.zero.inner import InnerTile


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Elements `begin` to `end` of a bucket, all in memory while it is handed out; what is written there is kept.

    `inner`'s leaves are views of `master` and `gradient`. `gradient` is fp32; `master` has the shard's dtype.
    """

    begin: int
    end: int
    master: torch.Tensor
    gradient: torch.Tensor
    inner: InnerTile


@dataclass(frozen=True, slots=True, eq=False)
class StatePart:
    """Elements `start` to `stop` of one parameter's state tensors, in memory or mapped from disk.

    `tensors` have as many elements, or with a whole layout any shape; `values` is everything else, counters too.
    """

    start: int
    stop: int
    master: torch.Tensor
    tensors: dict[str, torch.Tensor]
    values: dict[str, Any]


class ShardGradient(Protocol):
    """The reduced gradient of one rank's part of one bucket, fp32."""

    def add_gradient(self, arrived: PendingSum) -> None:
        """Adds the sum that arrived, divided; the first since `drop_gradient` is taken as it is."""
        ...

    def drop_gradient(self) -> None:
        """Forgets the gradient."""
        ...

    def gradients(self, *, write: bool) -> Iterator[tuple[int, torch.Tensor]]:
        """The gradient in pieces, each with the element of the bucket where it starts; none if none arrived.

        `write`: what is changed in a piece is kept.
        """
        ...


class ShardState(Protocol):
    """The optimizer's state of one rank's part of one bucket."""

    def state_parts(self, parameter: int) -> Sequence[StatePart]:
        """The state of a parameter, as live or mapped memory: what is written there is kept. In order of elements."""
        ...

    def empty_state(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory for `set_state`, where there is room for all of the state."""
        ...

    def set_state(self, parameter: int, parts: Sequence[StatePart] | None, groups: Sequence[dict[str, Any]]) -> None:
        """Takes state for a parameter, divided as `state_parts` divides it; None: it was never stepped."""
        ...


class Shard(ShardGradient, ShardState, Protocol):
    """One rank's part of one trainable bucket."""

    def tiles(self, *, step: bool) -> Iterator[Tile]:
        """Each tile, one at a time, in order; `step`: with its gradient and state, to be stepped. Else its master alone
        is to be read or written.
        """
        ...


class MemoryShard:
    """A shard whose master and state lie in the memory of one device; one tile."""

    def __init__(
        self, inner: InnerTile, master: torch.Tensor, begin: int, *, divisor: int, is_pinned: bool = False
    ) -> None:
        """`master`: the elements of the bucket from `begin` on; it may be the parameters' own memory. Sums that arrive
        are divided by `divisor`. `is_pinned`: they come from an accelerator, to pinned memory, while backward goes on.
        """
        self._is_pinned = is_pinned
        self._copied: torch.Event | None = None
        self._divisor = divisor
        self._inner = inner
        self._master = master
        self._begin = begin
        self._gradient: torch.Tensor | None = None
        self._has_gradient = False

    def add_gradient(self, arrived: PendingSum) -> None:
        """Adds what arrived."""
        self._wait_for_copy()
        if self._gradient is None:
            self._gradient = self._empty()
        if not self._has_gradient:
            self._copy(arrived, self._gradient)
        else:
            mean = self._empty()
            self._copy(arrived, mean)
            self._wait_for_copy()
            self._gradient += mean
        self._has_gradient = True

    def drop_gradient(self) -> None:
        """Forgets the gradient."""
        self._wait_for_copy()
        self._has_gradient = False
        self._gradient = None

    def gradients(self, *, write: bool) -> Iterator[tuple[int, torch.Tensor]]:
        """The whole of it."""
        del write  # it is the memory itself
        self._wait_for_copy()
        if self._has_gradient and self._gradient is not None:
            yield self._begin, self._gradient

    def tiles(self, *, step: bool) -> Iterator[Tile]:
        """The one tile."""
        self._wait_for_copy()
        if step and not self._has_gradient:
            return
        gradient = self._gradient if step and self._gradient is not None else self._master.new_empty(0)
        self._inner.point(self._master, gradient if step else None)
        yield Tile(self._begin, self._begin + self._master.numel(), self._master, gradient, self._inner)
        self._inner.point(self._master, None)  # or the leaves would keep a gradient that is dropped

    def state_parts(self, parameter: int) -> Sequence[StatePart]:
        """The one slice this rank has, if any."""
        one = self._inner.slice_of(parameter)
        if one is None:
            return []
        leaf, state = self._inner.point_one(one, self._master), self._inner.state_of(parameter)
        tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor) and value.ndim}
        values = {key: value for key, value in state.items() if key not in tensors}
        return [StatePart(one.start, one.stop, leaf.detach().view(-1), tensors, values)]

    def set_state(self, parameter: int, parts: Sequence[StatePart] | None, groups: Sequence[dict[str, Any]]) -> None:
        """Replaces the state; the master is written in place by whoever has its part."""
        if parameter in self._inner.leaves:
            if not self._inner.is_made:
                self._inner.point(self._master, None)  # some make state from the leaves at once
            state = {**parts[0].tensors, **parts[0].values} if parts else None
            self._inner.set_state(parameter, state, groups)

    def empty_state(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """On the device of the master."""
        return torch.empty(count, dtype=dtype, device=self._master.device)

    def _empty(self) -> torch.Tensor:
        count, device = self._master.numel(), self._master.device
        return torch.empty(count, dtype=torch.float32, device=device, pin_memory=self._is_pinned)

    def _copy(self, arrived: PendingSum, into: torch.Tensor) -> None:
        arrived.sum_into(into, self._divisor)
        if self._is_pinned:
            self._copied = torch.Event(arrived.received.device)
            self._copied.record(torch.accelerator.current_stream(arrived.received.device))

    def _wait_for_copy(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None
