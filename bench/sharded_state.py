"""The state that `bench.throughput` saves: float32 DTensors sharded by rows, their AdamW moments, a frozen part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

_ROWS, _COLUMNS = 1_024, 4_096
MATRIX_BYTES = 4 * _ROWS * _COLUMNS
_FROZEN_SHARE = 0.25


class Matrices(nn.Module):
    """Equal matrices, each sharded by rows over all ranks."""

    def __init__(self, count: int, mesh: DeviceMesh, *, trained: bool) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.Parameter(
                distribute_tensor(torch.randn(_ROWS, _COLUMNS) * 0.02, mesh, [Shard(0)]), requires_grad=trained
            )
            for _ in range(count)
        )


@dataclass(frozen=True, slots=True)
class ShardedState:
    """What is saved. Content is random: it compresses as real weights do, hardly."""

    trained: Matrices
    frozen: Matrices
    optimizer: torch.optim.AdamW

    @property
    def total_bytes(self) -> int:
        """Over all ranks."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def tensors(self) -> dict[str, DTensor]:
        """Every tensor under a name of its own, as a peer saves them."""
        found = {f"frozen.{number}": weight for number, weight in enumerate(self.frozen.weights)}
        for number, weight in enumerate(self.trained.weights):
            found[f"trained.{number}"] = weight
            for key in ("exp_avg", "exp_avg_sq"):
                found[f"optimizer.{number}.{key}"] = self.optimizer.state[weight][key]
        return {name: _sharded(tensor) for name, tensor in found.items()}

    def shards(self, *, frozen: bool = True) -> Iterator[Tensor]:
        """The parts of this rank, live memory."""
        for name, tensor in self.tensors().items():
            if frozen or not name.startswith("frozen."):
                yield tensor.to_local().detach()

    def change(self, *, frozen: bool) -> None:
        """Changes every element that is not zero; the frozen part only if told to."""
        for shard in self.shards(frozen=frozen):
            shard.mul_(1.0 + 2.0**-10)


def make_state(total_bytes: int) -> ShardedState:
    """About `total_bytes` over all ranks: a quarter frozen, the rest weights and two moments each."""
    torch.manual_seed(dist.get_rank())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    frozen = Matrices(max(round(total_bytes * _FROZEN_SHARE / MATRIX_BYTES), 1), mesh, trained=False)
    trained = Matrices(max(round(total_bytes * (1 - _FROZEN_SHARE) / 3 / MATRIX_BYTES), 1), mesh, trained=True)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-3)
    for weight in trained.weights:
        weight.grad = torch.randn_like(weight)
    optimizer.step()
    optimizer.zero_grad()
    return ShardedState(trained, frozen, optimizer)


def _sharded(tensor: Tensor) -> DTensor:
    assert isinstance(tensor, DTensor)
    return tensor
