"""The contenders of `bench.zero`: ways to train one model on several ranks, each ready to take steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from bench.mapped_adamw import MappedAdamW
from bench.zero_model import Block, ModelSize, build_model
from shardkeep.zero import NvmeOffload, ShardedOptimizer

_OPTIONS: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.1}
BASELINE = "DDP + AdamW"
MAPPED_CACHED = "stage 2, mmap in the page cache"
MAPPED = "stage 2, mmap within a budget"


@dataclass(frozen=True, slots=True)
class Contender:
    """A model and what steps it."""

    name: str
    model: nn.Module
    optimizer: Optimizer


def contenders(size: ModelSize, scratch: Path, budget_bytes: int, *, only: str) -> Iterator[Contender]:
    """Those whose name matches `only`, and DDP, each with a model of its own; files are below `scratch`.

    The mapped ones are stage 2 with moments in mapped files: in memory as long as the kernel likes, or given back after
    each step, as a budget demands.
    """

    def ours(**how: Any) -> Callable[[str], Contender]:
        return lambda name: _ours(size, name, **how)

    def mapped(name: str) -> Contender:
        folder, gives_back = _folder(scratch, name), name == MAPPED
        return _ours(size, name, inner=MappedAdamW, stage=2, folder=folder, gives_back=gives_back)

    def on_disk(stage: int, *, keeps_pages: bool = False) -> Callable[[str], Contender]:
        def make(name: str) -> Contender:
            offload = NvmeOffload(_folder(scratch, name), budget_bytes, keeps_pages=keeps_pages)
            return _ours(size, name, stage=stage, offload=offload)

        return make

    stages = (1, 2, 3)
    makers: dict[str, Callable[[str], Contender]] = {
        BASELINE: lambda name: _ddp(size, name),
        "DDP + ZeroRedundancyOptimizer": lambda name: _zero_redundancy(size, name),
        "FSDP2": lambda name: _fsdp2(size, name),
        **{f"stage {stage}": ours(stage=stage) for stage in stages},
        **{f"stage {stage}, cpu": ours(stage=stage, offload="cpu") for stage in stages},
        MAPPED_CACHED: mapped,
        "stage 2, NVMe in the page cache": on_disk(2, keeps_pages=True),
        MAPPED: mapped,
        **{f"stage {stage}, NVMe": on_disk(stage) for stage in stages},
    }
    for name, make in makers.items():
        if name == BASELINE or re.search(only, name):
            yield make(name)


def _ddp(size: ModelSize, name: str) -> Contender:
    model = build_model(size)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return Contender(name, wrapped, torch.optim.AdamW(model.parameters(), **_OPTIONS))


def _zero_redundancy(size: ModelSize, name: str) -> Contender:
    model = build_model(size)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=True, **_OPTIONS
    )
    return Contender(name, wrapped, optimizer)


def _fsdp2(size: ModelSize, name: str) -> Contender:
    model = build_model(size)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return Contender(name, model, torch.optim.AdamW(model.parameters(), **_OPTIONS))


def _ours(size: ModelSize, name: str, *, inner: type[Optimizer] = torch.optim.AdamW, **how: Any) -> Contender:
    """At stage 3 a block is gathered at once, as FSDP2 is told to."""
    model = build_model(size)
    return Contender(name, model, ShardedOptimizer(model, inner, whole_modules=(Block,), **_OPTIONS, **how))


def _folder(scratch: Path, name: str) -> Path:
    folder = scratch / f"{name}, rank {dist.get_rank()}"
    folder.mkdir()
    return folder
