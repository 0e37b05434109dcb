"""Masters that follow parameters which were written from outside."""

from __future__ import annotations

import torch

from shardkeep.zero.parameter_memory import ParameterMemory
from shardkeep.zero.shards import Shard


def refresh(shard: Shard, memory: ParameterMemory) -> None:
    """Every master becomes what its parameter is."""
    for tile in shard.tiles(step=False):
        memory.read_own(tile.begin, tile.master)


def refresh_written(shard: Shard, memory: ParameterMemory, dtype: torch.dtype) -> None:
    """What was not written keeps all digits of its master: there the parameter is what the master rounds to.

    `dtype`: of the parameters.
    """
    for tile in shard.tiles(step=False):
        if tile.master.dtype == dtype:
            memory.read_own(tile.begin, tile.master)
            continue
        now = torch.empty_like(tile.master, dtype=dtype)
        memory.read_own(tile.begin, now)
        is_same = tile.master.to(dtype) == now
        tile.master.copy_(torch.where(is_same, tile.master, now.to(tile.master.dtype)))
