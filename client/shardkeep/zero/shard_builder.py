"""Where the master and the state of a bucket's part go, by offload and dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.optim import Optimizer

from shardkeep.zero.inner import InnerTile
from shardkeep.zero.layout import Bucket, Layout
from shardkeep.zero.nvme import NvmeStore
from shardkeep.zero.nvme_shard import shard_on_nvme
from shardkeep.zero.parameter_memory import ParameterMemory
from shardkeep.zero.shards import MemoryShard, Shard


@dataclass(frozen=True, slots=True, eq=False)
class ShardBuilder:
    """Makes shards whose tiles are stepped by `inner` with `options`.

    `group_of`: of each parameter, by index. `where`: the disk, the host's memory, or None for beside the parameters.
    """

    inner: type[Optimizer]
    options: Mapping[str, Any]
    layout: Layout
    group_of: Sequence[int]
    where: NvmeStore | Literal["cpu"] | None
    divisor: int

    def shard(self, bucket: Bucket, part: tuple[int, int], memory: ParameterMemory, dtype: torch.dtype) -> Shard:
        """The shard of one part of a bucket. `dtype`: of what is stepped, the masters."""
        if isinstance(self.where, NvmeStore):
            inner_tile = partial(self._tile, bucket, dtype=dtype, device=torch.device("cpu"))
            return shard_on_nvme(self.where, bucket, part, memory, dtype, inner_tile, divisor=self.divisor)
        own = memory.own
        assert own is not None
        device = torch.device("cpu") if self.where == "cpu" else own.device
        is_pinned = device != own.device
        master = own
        if dtype != own.dtype or is_pinned:
            master = torch.empty(part[1] - part[0], dtype=dtype, device=device, pin_memory=is_pinned)
            memory.read_own(part[0], master)
        tile = self._tile(bucket, *part, dtype=dtype, device=device)
        return MemoryShard(tile, master, part[0], divisor=self.divisor, is_pinned=is_pinned)

    def _tile(self, bucket: Bucket, begin: int, end: int, *, dtype: torch.dtype, device: torch.device) -> InnerTile:
        factory: Callable[..., Optimizer] = lambda groups: self.inner(groups, **self.options)  # noqa: E731
        return InnerTile(
            factory,
            bucket.cut(begin, end),
            self.layout.specs,
            self.group_of,
            begin=begin,
            whole=self.layout.kind == "whole",
            dtype=dtype,
            device=device,
        )
