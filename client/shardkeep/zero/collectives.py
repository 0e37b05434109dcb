"""The collectives of the sharded optimizer: sums in the order of ranks, gathers in place, and small agreements.

On gloo a reduce-scatter is an all-reduce of a copy. Each rank's part goes to its owner by all-to-all instead, which
moves (N-1)/N of the bytes once, and the owner adds the parts in the order of ranks, in fp32: the sum depends neither on
stage, bucket nor timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

from shardkeep.errors import ConfigurationError

_all_gather: Callable[..., Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

_BLOCK_ELEMENTS: Final = 1 << 15
"""Summed at once: all its parts stay in a core's cache until they are divided."""


class _Work(Protocol):
    def wait(self) -> Any: ...


@dataclass(slots=True)
class PendingSum:
    """Parts on their way. Holds the memory they come from and go to."""

    sent: torch.Tensor
    received: torch.Tensor
    world_size: int
    work: _Work | None

    def wait(self) -> None:
        """Returns when the parts are here. Waiting again does nothing."""
        if self.work is not None:
            self.work.wait()
            self.work = None

    def sum_into(self, out: torch.Tensor, divisor: int, *, start: int = 0) -> None:
        """The sum of all ranks in their order, over `divisor`, into fp32 `out`: of this rank's part from `start` on.

        Into pinned memory it is copied on the current stream of the device it comes from, and there later than now.
        """
        self.wait()
        parts = self.received.view(self.world_size, -1)[:, start : start + out.numel()]
        total = out if out.device == parts.device else torch.empty_like(out, device=parts.device)
        block = _BLOCK_ELEMENTS if total.device.type == "cpu" else max(1, total.numel())
        for begin in range(0, total.numel(), block):
            _sum_in_order(parts[:, begin : begin + block], total[begin : begin + block], divisor)
        if total is not out:
            out.copy_(total, non_blocking=out.is_pinned())


@dataclass(slots=True)
class Gathering:
    """Gathers under way; hold it until `wait`."""

    works: list[_Work] = field(default_factory=list)
    kept: list[torch.Tensor] = field(default_factory=list)

    def wait(self) -> None:
        """Returns when every part is in place. Waiting again does nothing."""
        for work in self.works:
            work.wait()
        self.works.clear()
        self.kept.clear()


class Collectives:
    """One group of ranks; without torch.distributed, or of one rank, nothing is sent."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        is_there = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank(group) if is_there else 0
        self.world_size = dist.get_world_size(group) if is_there else 1

    def start_sum(self, flat: torch.Tensor, bounds: Sequence[int]) -> PendingSum:
        """Sends each rank its part of `flat`, which must not be written until the sum is taken."""
        if self.world_size == 1:
            return PendingSum(flat, flat, 1, None)
        own = bounds[self.rank + 1] - bounds[self.rank]
        received = torch.empty(own * self.world_size, dtype=flat.dtype, device=flat.device)
        sent = [bounds[rank + 1] - bounds[rank] for rank in range(self.world_size)]
        work = dist.all_to_all_single(
            received, flat[: bounds[-1]], [own] * self.world_size, sent, group=self._group, async_op=True
        )
        return PendingSum(flat, received, self.world_size, work)

    def start_gather(self, flat: torch.Tensor, bounds: Sequence[int]) -> Gathering:
        """Fills `flat` with every rank's part; this rank's lies in it already.

        On gloo an all-gather goes through a copy of the whole; broadcasts of the parts go from place to place and take
        half the CPU for the same bytes.
        """
        gathering = Gathering()
        if self.world_size == 1:
            return gathering
        part = bounds[self.rank + 1] - bounds[self.rank]
        is_even = all(bounds[rank + 1] - bounds[rank] == part for rank in range(self.world_size))
        if is_even and flat.device.type != "cpu":
            own = flat[bounds[self.rank] : bounds[self.rank + 1]]
            gathering.kept.append(own)
            gathering.works.append(_all_gather(flat, own, group=self._group, async_op=True))
            return gathering
        for rank in range(self.world_size):
            piece = flat[bounds[rank] : bounds[rank + 1]]
            if piece.numel():
                gathering.works.append(dist.broadcast(piece, group_src=rank, group=self._group, async_op=True))
        return gathering

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Rank 0's content, on all ranks."""
        if self.world_size > 1 and tensor.numel():
            whole = tensor.contiguous()
            dist.broadcast(whole, group_src=0, group=self._group)
            if whole is not tensor:
                tensor.copy_(whole)

    def send(
        self, given: torch.Tensor | None, count: int, *, source: int, to: int | None, device: torch.device
    ) -> torch.Tensor | None:
        """`count` bytes of one rank, which alone gives them, on another, or with None on all; None elsewhere."""
        if count == 0 or to == source or self.world_size == 1:
            return given
        if self.rank not in (source, to) and to is not None:
            return None
        held = torch.empty(count, dtype=torch.uint8, device=device) if given is None else given.to(device)
        if to is None:
            dist.broadcast(held, group_src=source, group=self._group)
        elif self.rank == source:
            dist.send(held, group_dst=to, group=self._group)
        else:
            dist.recv(held, group_src=source, group=self._group)
        return held

    def gather_objects(self, given: Any) -> list[Any]:
        """A small object of every rank, in their order."""
        found: list[Any] = [given] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(found, given, group=self._group)
        return found

    def maximum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The largest of all ranks, element by element, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group)
        return tensor

    def gather_rows(self, row: torch.Tensor) -> torch.Tensor:
        """The same small tensor of every rank, one row each."""
        rows = torch.empty((self.world_size, row.numel()), dtype=row.dtype, device=row.device)
        if self.world_size == 1:
            rows[0] = row
        else:
            _all_gather(rows.view(-1), row.contiguous(), group=self._group)
        return rows

    def check_equal(self, digest: bytes, what: str, device: torch.device) -> None:
        """ConfigurationError on every rank unless all have the same 16 bytes."""
        rows = self.gather_rows(torch.tensor(list(digest), dtype=torch.uint8, device=device)).cpu()
        other = [rank for rank in range(self.world_size) if not torch.equal(rows[rank], rows[0])]
        if other:
            raise ConfigurationError(
                f"{what} differ on ranks {', '.join(map(str, other[:8]))} from rank 0's: build the same model, in the "
                "same order and with the same options, on every rank"
            )


def _sum_in_order(parts: torch.Tensor, total: torch.Tensor, divisor: int) -> None:
    """Of rows of any dtype into fp32. Two rows of fp32 are read once only."""
    added = 1
    if parts.shape[0] > 1 and parts.dtype == total.dtype:
        torch.add(parts[0], parts[1], out=total)
        added = 2
    else:
        total.copy_(parts[0])
    for part in parts[added:]:
        total += part
    if divisor != 1:
        total /= divisor
