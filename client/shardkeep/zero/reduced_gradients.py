"""What can be done with gradients once they are reduced: each rank has its part, in its shards."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from shardkeep.zero.collectives import Collectives
from shardkeep.zero.layout import Bucket
from shardkeep.zero.norms import GradientNorm
from shardkeep.zero.shards import Shard, ShardGradient


class ReducedGradients:
    """The gradients in all shards of one rank. What is waiting on some rank has to be settled before."""

    def __init__(self, shards: Mapping[int, Shard], collectives: Collectives) -> None:
        """`shards`: by bucket; there may be more later."""
        self._shards = shards
        self._collectives = collectives

    def norm(self, norm_type: float, device: torch.device) -> torch.Tensor:
        """Over all ranks. Collective, on `device`."""
        norm = GradientNorm(norm_type)
        for shard in self._shards.values():
            for _, values in shard.gradients(write=False):
                norm.add(values)
        return norm.over(self._collectives, device)

    def scale(self, factor: float) -> None:
        """Multiplies them."""
        if factor == 1.0:
            return
        for shard in self._shards.values():
            for _, values in shard.gradients(write=True):
                values.mul_(factor)

    def unscale(self, factor: float, device: torch.device) -> bool:
        """Multiplies them; whether they are finite on all ranks. Collective, on `device`."""
        bad = torch.zeros((), device=device)
        for shard in self._shards.values():
            for _, values in shard.gradients(write=True):
                if values.numel() and not torch.isfinite(torch.linalg.vector_norm(values, torch.inf)):
                    bad.fill_(1.0)
                values.mul_(factor)
        return not self._collectives.maximum(bad)

    def forget(self) -> None:
        """Forgets them."""
        for shard in self._shards.values():
            shard.drop_gradient()


def slice_in(shard: ShardGradient, bucket: Bucket, parameter: int) -> tuple[int, torch.Tensor] | None:
    """What a shard has of a parameter's gradient: its first element and the values, as a copy; None if nothing."""
    start, found = None, []
    for begin, values in shard.gradients(write=False):
        for one in bucket.cut(begin, begin + values.numel()):
            if one.parameter == parameter:
                start = one.start if start is None else start
                found.append(values[one.offset - begin : one.offset - begin + one.size].clone())
    return None if start is None else (start, torch.cat(found))
