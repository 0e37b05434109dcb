"""Memory: what is live is what the formulas of ZeRO say, and what a process takes at most grows like it.

Bytes a parameter on each of N ranks, with Adam; fp32 gradients are added up where they are owned:

    fp32                  1: 4 + 4 + (4 + 8) / N         2: 4 + (4 + 8) / N         3: (4 + 4 + 8) / N
    bf16, fp32 masters    1: 2 + 2 + (4 + 4 + 8) / N     2: 2 + (4 + 4 + 8) / N     3: (2 + 4 + 4 + 8) / N

Beside them: one bucket that waits to be used again.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import time
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardkeep.zero import NvmeOffload, ShardedOptimizer
from tests.distributed.launcher import RankPools, run_ranks

MEBIBYTE = 1 << 20
WIDTH = 512
MMAP_THRESHOLD, ARENA_MAX = -3, -8


def formula(stage: int, dtype: torch.dtype, ranks: int) -> float:
    """Bytes a parameter."""
    size = dtype.itemsize
    owned = 4 + 8 + (0 if size == 4 else 4)
    whole = {1: 2 * size, 2: size, 3: size / ranks}[stage]
    return whole + owned / ranks


def layers(count: int, width: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(count))).to(dtype)


def backward(model: nn.Module, step: int) -> None:
    weight = next(model.parameters())
    batch = torch.randn(2, weight.shape[1], generator=torch.Generator().manual_seed(step)).to(weight.dtype)
    model(batch).float().square().mean().backward()


def train(model: nn.Module, optimizer: ShardedOptimizer, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()


# --- what is live -----------------------------------------------------------------------------------------------------


def live_bytes() -> int:
    """Of all memory that tensors of this process have, but those that were frozen; once nothing is let go any more."""
    found, same = live_now(), 0
    for _ in range(1_000):
        time.sleep(0.01)  # threads that carry out collectives let go of what was sent a moment after it has arrived
        before, found = found, live_now()
        same = same + 1 if found == before else 0
        if same == 30:
            return found
    raise AssertionError("what is live changes all the time")


def live_now() -> int:
    gc.collect()
    storages = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor) and one.layout is torch.strided:
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def live_bytes_of_training(rank: int, world_size: int, *, bucket_mb: float) -> dict[str, tuple[int, float]]:
    """How much more is live than before at the fullest, after two steps and a backward; and what the formula says."""
    found = {}
    gc.collect()
    gc.freeze()  # what was there before is not looked at each time
    stages: tuple[Literal[1, 2, 3], ...] = (1, 2, 3)
    for stage, dtype in itertools.product(stages, (torch.float32, torch.bfloat16)):
        before = live_bytes()
        model = layers(20, 128, dtype)
        optimizer = ShardedOptimizer(
            model, torch.optim.AdamW, lr=1e-3, stage=stage, bucket_mb=bucket_mb, persistent_elements=1
        )
        train(model, optimizer, 2)
        backward(model, 2)
        wanted = formula(stage, dtype, world_size) * sum(one.numel() for one in model.parameters())
        found[f"stage {stage}, {dtype}"] = live_bytes() - before, wanted
        del model, optimizer
    gc.unfreeze()
    return found


@pytest.mark.parametrize("world_size", [1, 2])
def test_live_storage_is_what_the_formula_says(rank_pools: RankPools, world_size: int) -> None:
    bucket = MEBIBYTE // 8

    for found in rank_pools.of(world_size).run(live_bytes_of_training, bucket_mb=bucket / MEBIBYTE):
        wrong = {what: pair for what, pair in found.items() if not 0 <= pair[0] - pair[1] < bucket + 0.02 * pair[1]}
        assert not wrong


# --- what a process takes at most -------------------------------------------------------------------------------------


def give_memory_back_at_once() -> None:
    """Has malloc map and unmap all that is large, so that what a process takes is what it uses."""
    libc = ctypes.CDLL(None)
    assert libc.mallopt(MMAP_THRESHOLD, 64 << 10) == 1
    assert libc.mallopt(ARENA_MAX, 1) == 1


def reset_peak() -> int:
    """Bytes the process takes now; `peak` counts from here."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The most bytes the process has taken."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def warm_up() -> None:
    """What torch, gloo and a step take once, whatever the model."""
    model = layers(2, WIDTH, torch.float32)
    optimizer = ShardedOptimizer(model, torch.optim.AdamW, stage=2)
    train(model, optimizer, 1)
    optimizer.close()


def peak_of_training(rank: int, world_size: int, *, stage: Any, count: int) -> int:
    """Of building a model and two steps."""
    give_memory_back_at_once()
    warm_up()
    dist.barrier()
    before = reset_peak()
    model = layers(count, WIDTH, torch.float32)
    optimizer = ShardedOptimizer(model, torch.optim.AdamW, lr=1e-3, stage=stage, bucket_mb=2, persistent_elements=1)
    train(model, optimizer, 2)
    return peak() - before


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_peak_of_the_process_grows_with_the_model_as_the_formula_says(tmp_path: Path, stage: int) -> None:
    counts = (8, 32)

    peaks = [run_ranks(peak_of_training, 2, directory=tmp_path, stage=stage, count=count) for count in counts]

    elements = (counts[1] - counts[0]) * WIDTH * WIDTH
    slopes = [(large - small) / elements for small, large in zip(*peaks, strict=True)]
    wanted = formula(stage, torch.float32, 2)
    assert all(abs(slope / wanted - 1) < 0.05 for slope in slopes), (slopes, wanted)


# --- on NVMe ----------------------------------------------------------------------------------------------------------


def peak_on_nvme(rank: int, world_size: int, *, scratch: Path, budget_bytes: int, count: int) -> tuple[int, int, int]:
    """The peak of three steps above a process that has trained another model; the scratch file; and what is live."""
    give_memory_back_at_once()
    warm_up()
    live = live_bytes()
    before = reset_peak()
    model = layers(count, WIDTH, torch.float32)
    optimizer = ShardedOptimizer(
        model,
        torch.optim.AdamW,
        lr=1e-3,
        stage=3,
        offload=NvmeOffload(scratch, budget_bytes),
        persistent_elements=1,
    )
    reset_peak()
    train(model, optimizer, 3)
    store = optimizer._nvme
    assert store is not None
    return peak() - before, store.file.size_bytes, live_bytes() - live


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_model_whose_state_is_four_budgets_trains_within_the_budget(tmp_path: Path, world_size: int) -> None:
    """Beside the budget: what autograd has of one layer, what gloo copies, and what Python takes for tiles."""
    budget, count = 24 * MEBIBYTE, 24 * world_size
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    found = run_ranks(peak_on_nvme, world_size, directory=tmp_path, scratch=scratch, budget_bytes=budget, count=count)

    state = 16 * count * WIDTH * WIDTH / world_size
    layer = 4 * WIDTH * WIDTH
    assert state == 4 * budget
    for at_most, on_disk, live in found:
        assert on_disk >= state
        assert live < budget
        assert at_most < budget + 6 * layer
