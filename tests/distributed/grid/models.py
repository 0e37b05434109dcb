"""The models of the grid and how they lie on the ranks; parameters are filled before torch shards them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.grid.contents import content

SHAPES = ((0,), (0, 4), (1,), (6,), (1, 8), (1, 17), (5, 3), (7, 3), (20, 2), (1, 4, 8), (1003, 8))
DTYPES: dict[str, torch.dtype] = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f64": torch.float64,
}
MOMENTS = ("exp_avg", "exp_avg_sq")


def shape_name(shape: tuple[int, ...]) -> str:
    return "s" + "_".join(map(str, shape))


class Block(nn.Module):
    """A parameter of each shape, of one dtype. Forward gives their sums, which are whole numbers and exact."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        for shape in SHAPES:
            self.register_parameter(shape_name(shape), nn.Parameter(torch.zeros(shape, dtype=dtype)))

    def forward(self) -> torch.Tensor:
        return torch.stack([parameter.double().sum() for parameter in self.parameters()])


class Model(nn.Module):
    """A block for each dtype, a parameter of its own and a scalar, which FSDP2 leaves to every rank."""

    def __init__(self, dtypes: dict[str, torch.dtype] | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({name: Block(dtype) for name, dtype in (dtypes or DTYPES).items()})
        self.own = nn.Parameter(torch.zeros(9, 5))
        self.scalar = nn.Parameter(torch.zeros(()))

    def forward(self) -> torch.Tensor:
        own = torch.stack([self.own.double().sum(), self.scalar.double().sum()])
        return torch.cat([own, *(block() for block in self.blocks.values())])

    def shard(self, mesh: DeviceMesh) -> None:
        for block in self.blocks.values():
            fully_shard(block, mesh=mesh)
        fully_shard(self, mesh=mesh, ignored_params={self.scalar})


class Feed(nn.Module):
    """Two layers that tensor parallelism cuts along either dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, 10, bias=False)
        self.down = nn.Linear(10, 7, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(self.up(inputs))
        return result


class Normed(nn.Module):
    """BatchNorm, whose buffers differ by rank under DDP, and parameters as DDP holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 3)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.norm(inputs)) * self.scale
        return result


def fill(module: nn.Module, keyword: str, slot: str = "") -> None:
    """Parameters become the contents of their names; `slot` tells moments from weights."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(expected(keyword, name, slot, parameter))


def expected(keyword: str, name: str, slot: str, like: torch.Tensor) -> torch.Tensor:
    """The whole of what belongs at a name."""
    return content(f"{keyword}.{name}.{slot}", tuple(like.shape), like.dtype)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The global tensor, gathered by torch."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def local(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def place(module: nn.Module, layout: str) -> nn.Module:
    """`plain`, `ddp`, `fsdp`, `hsdp` (2 x n), `tp` (fsdp 2 x tp n), or `AxB` for HSDP on that mesh."""
    world = dist.get_world_size()
    if layout == "plain":
        return module
    if layout == "ddp":
        return DistributedDataParallel(module, broadcast_buffers=False)
    if layout == "tp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(module, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(module, mesh=mesh["dp"])
        return module
    if layout == "fsdp":
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("shard",))
    else:
        shape = (2, world // 2) if layout == "hsdp" else tuple(int(size) for size in layout.split("x"))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replica", "shard"))
    if isinstance(module, Model):
        module.shard(mesh)
    else:
        fully_shard(module, mesh=mesh)
    return module


def with_moments(module: nn.Module, keyword: str, *, twins: dict[str, nn.Module]) -> torch.optim.AdamW:
    """An AdamW whose moments are the parameters of twins of the module, filled and placed as it is."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.125)
    moments = {slot: dict(twin.named_parameters()) for slot, twin in twins.items()}
    for name, parameter in module.named_parameters():
        state: dict[str, Any] = {slot: moments[slot][name].detach() for slot in MOMENTS}
        optimizer.state[parameter] = {"step": torch.tensor(float(len(name))), **state}
    return optimizer


def moment_dtypes(slot: str) -> dict[str, torch.dtype]:
    """Second moments in the parameters' dtypes, first ones in float32 whatever the parameter is."""
    return DTYPES if slot == "exp_avg_sq" else dict.fromkeys(DTYPES, torch.float32)
