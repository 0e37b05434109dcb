"""Running a function on several real gloo processes, bounded in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from shardkeep.pytorch.capture import TrainingState
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint, RankSave, save
from tests.warm_process import forkserver


def run_ranks(function: Callable[..., None], world_size: int, folder: Path, *, timeout_seconds: float = 240) -> None:
    """Run `function(rank, world_size, folder)` in each rank; any failure is raised here."""
    forkserver()  # ranks are forked from a process that has torch loaded
    context: Any = start_processes(
        _rank, args=(function, world_size, folder), nprocs=world_size, join=False, start_method="forkserver"
    )
    deadline = time.monotonic() + timeout_seconds
    try:
        while not context.join(timeout=1):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{function.__name__} on {world_size} ranks took over {timeout_seconds} seconds")
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()


def _rank(rank: int, function: Callable[..., None], world_size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    try:
        function(rank, world_size, folder)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def save_all(state: TrainingState) -> MemoryCheckpoint:
    """The checkpoint of all ranks, on each of them; it asserts that replicas agree and nothing is left out."""
    saved: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(saved, save(state.capture()))
    ranks: list[RankSave] = saved
    return MemoryCheckpoint(ranks)
