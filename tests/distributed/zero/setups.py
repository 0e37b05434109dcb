"""Ways to train one odd model, on some of the ranks of a launch, and what they save: for tests of state across layouts.

Gradients are given, the same on all ranks and of few digits, so that their mean is exact for every number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from shardkeep.pytorch.capture import TrainingState
from shardkeep.zero import ShardedOptimizer
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint, save

OPTIONS: dict[str, Any] = {"lr": 2**-6, "weight_decay": 2**-4}


@dataclass(frozen=True)
class Setup:
    """How the model is trained: `kind` is zero, plain (on every rank alike) or fsdp2."""

    kind: str
    world: int = 1
    stage: int = 2
    offload: str | None = None
    dtype: torch.dtype = torch.float32
    layout: str = "flat"
    inner: Any = torch.optim.AdamW
    options: dict[str, Any] = field(default_factory=lambda: dict(OPTIONS))

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        if self.kind != "zero":
            return f"{self.kind} on {self.world}, {dtype}"
        return f"stage {self.stage} on {self.world}, {dtype}, {self.layout}, offload {self.offload}"


class Odd(nn.Module):
    """Shapes that nothing divides, one without elements, a scalar; the gradient of each is what `gradient` gives."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=generator)))
        self.unused: set[str] = set()

    def forward(self, step: int) -> torch.Tensor:
        terms = [
            (one * gradient(name, step, tuple(one.shape)).to(one.dtype)).sum().double()
            for name, one in self.named_parameters(recurse=False)
            if name not in self.unused
        ]
        return torch.stack(terms).sum()


class Model(nn.Module):
    """Two odd modules; one parameter has two names, one is frozen, one gets no gradient."""

    def __init__(self, dtype: torch.dtype = torch.float32, *, seed: int = 0) -> None:
        super().__init__()
        first = {"wide": (7, 3), "bias": (5,), "one": (1,), "scalar": (), "empty": (0, 4)}
        self.first = Odd(first, seed)
        self.last = Odd({"deep": (3, 2, 5), "row": (1, 17), "idle": (6,), "frozen": (4, 2)}, seed + 1)
        self.last.alias = self.last.deep
        self.last.unused = {"idle", "frozen"}
        self.last.frozen.requires_grad_(False)
        self.to(dtype)

    def forward(self, step: int) -> torch.Tensor:
        result: torch.Tensor = self.first(step) + self.last(step)
        return result


def gradient(name: str, step: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Multiples of 1/32 below 2 in magnitude: exact in bf16, and so is three times as much in fp32."""
    generator = torch.Generator().manual_seed(1009 * step + sum(name.encode()))
    return torch.randint(-63, 64, shape, generator=generator) / 32


@dataclass
class Trained:
    """A model and its optimizer on this rank."""

    setup: Setup
    model: nn.Module
    optimizer: torch.optim.Optimizer
    state: TrainingState = field(init=False)

    def __post_init__(self) -> None:
        self.state = TrainingState({"model": self.model, "optimizer": self.optimizer})

    def train(self, steps: Iterable[int], *, max_norm: float | None = None) -> None:
        """Steps with the given gradients."""
        for step in steps:
            self.optimizer.zero_grad()
            self.model(step).backward()
            if max_norm is not None:
                self._clip(max_norm)
            self.optimizer.step()

    def _clip(self, max_norm: float) -> None:
        if isinstance(self.optimizer, ShardedOptimizer):
            self.optimizer.clip_grad_norm_(max_norm)
            return
        gradients = [one.grad for one in self.model.parameters() if one.grad is not None]
        wholes = [
            one.full_tensor() if isinstance(one, DTensor) else one for one in gradients
        ]  # torch's takes no mixture
        norm = sum(float(one.double().square().sum()) for one in wholes) ** 0.5
        for gradient in gradients:
            gradient.mul_(min(1.0, max_norm / (norm + 1e-6)))


def params_of(model: nn.Module) -> Iterable[Any]:
    """What the optimizer is given: all parameters."""
    return model.parameters()


def build(
    setup: Setup,
    *,
    seed: int = 0,
    make: Callable[..., nn.Module] = Model,
    params: Callable[[nn.Module], Iterable[Any]] = params_of,
) -> Trained | None:
    """The model and optimizer on the first ranks of the launch; None on the others. Every rank calls it."""
    group = group_of(setup.world)
    if dist.get_rank() >= setup.world:
        return None
    model = make(setup.dtype, seed=seed)
    if setup.kind == "zero":
        optimizer: torch.optim.Optimizer = ShardedOptimizer(
            model,
            setup.inner,
            params=params(model),
            stage=setup.stage,  # type: ignore[arg-type]
            offload=setup.offload,  # type: ignore[arg-type]
            layout=setup.layout,  # type: ignore[arg-type]
            bucket_mb=0.0001,
            persistent_elements=10,
            group=group,
            **setup.options,
        )
        return Trained(setup, model, optimizer)
    if setup.kind == "fsdp2":
        _fully_shard(model, DeviceMesh.from_group(group, "cpu"))
    return Trained(
        setup, model, setup.inner(params(model), foreach=None if setup.kind == "plain" else False, **setup.options)
    )


def _fully_shard(model: nn.Module, mesh: DeviceMesh) -> None:
    unfit = {one for one in model.parameters() if one.ndim == 0 or one.numel() == 0}
    for module in model.children():
        fully_shard(module, mesh=mesh, ignored_params=unfit)
    fully_shard(model, mesh=mesh, ignored_params=unfit)


_groups: dict[int, dist.ProcessGroup] = {}


def group_of(world: int) -> dist.ProcessGroup:
    """The first ranks of this launch. Every rank calls it, in the same order."""
    if world not in _groups:
        _groups[world] = dist.new_group(list(range(world)))
    return _groups[world]


def saved(trained: Trained | None, world: int) -> MemoryCheckpoint:
    """The checkpoint of the ranks that train, on all ranks of the launch."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, None if trained is None else save(trained.state.capture()))
    return MemoryCheckpoint(found[:world])


def whole(checkpoint: MemoryCheckpoint) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint by name."""
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64, "int64": torch.int64}
    found = {}
    for tensor in checkpoint.tensors():
        data = bytearray(checkpoint.tensor_bytes(tensor.name))
        flat = (
            torch.frombuffer(data, dtype=dtypes[tensor.dtype]) if data else torch.empty(0, dtype=dtypes[tensor.dtype])
        )
        found[tensor.name] = flat.view(tensor.shape)
    return found


def unequal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], *, within: float = 0.0) -> list[str]:
    """The names, in words, that are not the same bit for bit, or within a relative distance."""
    told = [f"{name} is on one side alone" for name in sorted(found.keys() ^ wanted.keys())]
    for name in sorted(found.keys() & wanted.keys()):
        here, there = found[name], wanted[name]
        if here.dtype != there.dtype or here.shape != there.shape:
            told.append(f"{name}: {here.dtype} {tuple(here.shape)} for {there.dtype} {tuple(there.shape)}")
        elif not (torch.equal(here, there) if within == 0 else torch.allclose(here, there, rtol=within, atol=within)):
            told.append(f"{name} differs by {float((here.double() - there.double()).abs().max()):.3g}")
    return told


def restore(trained: Trained | None, checkpoint: MemoryCheckpoint, **leniency: Any) -> Sequence[str]:
    """Puts it back on the ranks that train; the notes."""
    if trained is None:
        return ()
    world = trained.setup.world
    notes = trained.state.restore(checkpoint, rank=dist.get_rank(), world_size=world, **leniency).notes
    return [note for note in notes if "foreach" not in note]
