"""Small models, data and loops that ranks train in these tests: dropout, AdamW, a schedule, augmentation."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import Dataset

import shardkeep.pytorch as skt
from shardkeep.pytorch.checkpointer import Checkpointer
from shardkeep.pytorch.sampler import ResumableSampler

SAMPLES = 40
BATCH = 8


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """Inputs with augmentation from all three generators, and the index each came from."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        exact = torch.linspace(0, 1, 8) * index
        return exact + 0.01 * torch.randn(8) + 0.01 * random.random() + 0.01 * float(np.random.rand()), index


def make_net(*, batch_norm: bool = False) -> nn.Sequential:
    """8 -> 3, with dropout; sizes that 2 and 4 ranks shard unevenly."""
    torch.manual_seed(0)
    middle: nn.Module = nn.BatchNorm1d(13) if batch_norm else nn.Tanh()
    return nn.Sequential(nn.Linear(8, 13), middle, nn.Dropout(0.3), nn.Linear(13, 3))


def shard(net: nn.Sequential, *, replicas: int = 1) -> nn.Module:
    """FSDP2 over all ranks, as HSDP with `replicas` above 1."""
    world = dist.get_world_size()
    shape, names = ((world,), ("shard",)) if replicas == 1 else ((replicas, world // replicas), ("replica", "shard"))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


@dataclass
class Training:
    """One rank's training: what it keeps, and what each step gave."""

    model: nn.Module
    rank: int = 0
    workers: int = 0
    optimizer: torch.optim.Optimizer = field(init=False)
    losses: list[str] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=50)
        self.sampler = ResumableSampler(SAMPLES, batch_size=BATCH, seed=5)
        self.loader = self.sampler.loader(Noisy(), num_workers=self.workers)
        self.loop: dict[str, Any] = {"best": float("inf"), "seen": 0}
        torch.manual_seed(100 + self.rank)
        random.seed(200 + self.rank)
        np.random.seed(300 + self.rank)

    def items(self) -> dict[str, object]:
        """What a keeper is given."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "data": self.sampler,
            "loop": self.loop,
        }

    def batches(self) -> Iterator[Any]:
        """This rank's batches, from the sampler's position on."""
        return iter(self.loader)

    def train_on(self, batch: Any) -> None:
        """One optimizer step, with draws from every global generator."""
        inputs, indices = batch
        self.samples += indices.tolist()
        scale = 1 + 0.01 * random.random() + 0.01 * float(np.random.rand())
        loss = (self.model(inputs) * scale - inputs[:, :3]).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.loop["best"] = min(self.loop["best"], loss.item())
        self.loop["seen"] += len(indices)
        self.losses.append(loss.item().hex())

    def digest(self) -> str:
        """Of this rank's parameters, buffers, optimizer state and the rest."""
        found = hashlib.sha256()
        tensors = [*self.model.state_dict().items()]
        for number, state in enumerate(self.optimizer.state.values()):
            tensors += [(f"{number}.{key}", value) for key, value in sorted(state.items())]
        for name, tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            found.update(name.encode() + local.detach().contiguous().numpy().tobytes())
        found.update(repr((self.scheduler.state_dict(), self.loop, self.sampler.state_dict())).encode())
        return found.hexdigest()


def report(training: Training, keeper: Checkpointer | None) -> dict[str, Any]:
    """What a test wants to know of one rank."""
    resumed = keeper.resumed if keeper is not None else None
    return {
        "losses": training.losses,
        "samples": training.samples,
        "digest": training.digest(),
        "step": resumed.step if resumed else None,
        "verdict": resumed.verdict if resumed else None,
        "reasons": list(resumed.reasons) if resumed else [],
        "checkpoint": resumed.checkpoint.id if resumed and resumed.checkpoint else None,
        "failures": [(failed.step, type(failed.error).__name__, str(failed.error)) for failed in keeper.failures]
        if keeper is not None
        else [],
    }


def train_chain(
    rank: int,
    world_size: int,
    *,
    run: str,
    layout: str,
    until: int,
    workers: int = 0,
    saves: tuple[int, ...] = (),
    resume: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Resume, train to step `until`, save at the given steps."""
    training = Training(make_model(layout), rank=rank, workers=workers)
    with skt.Checkpointer(run, **training.items()) as keeper:
        start = keeper.resume(**(resume or {}))
        batches = training.batches()
        for n in range(start + 1, until + 1):
            training.train_on(next(batches))
            if n in saves:
                keeper.save(n, metrics={"loss": float.fromhex(training.losses[-1])})
    return report(training, keeper)


def train_uninterrupted(rank: int, world_size: int, *, layout: str, until: int, workers: int = 0) -> dict[str, Any]:
    """The reference: no keeper at all."""
    training = Training(make_model(layout), rank=rank, workers=workers)
    batches = training.batches()
    for _ in range(until):
        training.train_on(next(batches))
    return report(training, None)


def make_model(layout: str) -> nn.Module:
    """fsdp, hsdp, ddp (with BatchNorm), or plain."""
    if layout == "ddp":
        return nn.parallel.DistributedDataParallel(make_net(batch_norm=True))
    if layout == "plain":
        return make_net()
    return shard(make_net(), replicas=2 if layout == "hsdp" else 1)
