"""How the demo's model is trained: FSDP2, the sharded optimizer at stage 2 or 3, or plain PyTorch on one rank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from demo.gpt import Gpt
from shardkeep.zero import ShardedOptimizer

Setup = Literal["fsdp2", "zero2", "zero3", "plain"]
SETUPS: Final[tuple[Setup, ...]] = get_args(Setup)
_OPTIONS: Final[dict[str, Any]] = {"lr": 1e-3}


def build(setup: Setup, *, seed: int) -> tuple[Gpt, torch.optim.Optimizer]:
    """The model and its optimizer, divided over all ranks unless `plain`."""
    torch.manual_seed(seed)
    model = Gpt()
    if setup == "fsdp2":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif setup == "zero2":
        return model, ShardedOptimizer(model, torch.optim.AdamW, stage=2, bucket_mb=0.5, **_OPTIONS)
    elif setup == "zero3":
        return model, ShardedOptimizer(model, torch.optim.AdamW, stage=3, persistent_elements=1_000, **_OPTIONS)
    elif dist.get_world_size() > 1:
        raise SystemExit("nothing reduces the gradients of a plain model: run it on one rank")
    return model, torch.optim.AdamW(model.parameters(), **_OPTIONS)


def whole_state_digest(model: Gpt, optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """SHA-256 of every whole weight and moment, gathered; what two runs must agree on bit for bit. Collective."""
    tensors = _sharded(model, optimizer) if isinstance(optimizer, ShardedOptimizer) else _plain(model, optimizer)
    digests = {}
    for name, tensor in tensors:
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        digests[name] = hashlib.sha256(raw).hexdigest()
    return digests


def _plain(model: Gpt, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in model.named_parameters():
        for key, value in (("", parameter), *optimizer.state.get(parameter, {}).items()):
            yield f"{name}{'.' if key else ''}{key}", value.full_tensor() if isinstance(value, DTensor) else value


def _sharded(model: Gpt, optimizer: ShardedOptimizer) -> Iterator[tuple[str, torch.Tensor]]:
    with optimizer.gathered(model):
        yield from [(name, parameter.detach().clone()) for name, parameter in model.named_parameters()]
    states = optimizer.state_dict()["state"]
    for number, (name, _) in enumerate(model.named_parameters()):
        yield from ((f"{name}.{key}", value) for key, value in states.get(number, {}).items())
