"""Memory: what is live is what the formulas of ZeRO say, and what a process takes at most grows like it.

Bytes a parameter on each of N ranks, with Adam; fp32 gradients are added up where they are owned:

    fp32                  1: 4 + 4 + (4 + 8) / N         2: 4 + (4 + 8) / N         3: (4 + 4 + 8) / N
    bf16, fp32 masters    1: 2 + 2 + (4 + 4 + 8) / N     2: 2 + (4 + 4 + 8) / N     3: (2 + 4 + 4 + 8) / N

Beside them: one bucket that waits to be used again.
"""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

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


def train(model: nn.Module, optimizer: ShardedOptimizer, width: int, dtype: torch.dtype, steps: int) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        batch = torch.randn(2, width, generator=torch.Generator().manual_seed(step)).to(dtype)
        model(batch).float().square().mean().backward()
        optimizer.step()


# --- what is live -----------------------------------------------------------------------------------------------------


def live_bytes() -> int:
    """Of all memory that tensors of this process have."""
    gc.collect()
    storages = {}
    for one in gc.get_objects():
        if isinstance(one, torch.Tensor) and one.layout is torch.strided:
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def live_bytes_of_training(rank: int, world_size: int, *, stage: Any, dtype: torch.dtype, bucket_mb: float) -> int:
    """How much more is live than before."""
    before = live_bytes()
    model = layers(20, 128, dtype)
    optimizer = ShardedOptimizer(
        model, torch.optim.AdamW, lr=1e-3, stage=stage, bucket_mb=bucket_mb, persistent_elements=1
    )
    train(model, optimizer, 128, dtype, 2)
    return live_bytes() - before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("world_size", [1, 2])
def test_live_storage_is_what_the_formula_says(
    rank_pools: RankPools, world_size: int, stage: int, dtype: torch.dtype
) -> None:
    bucket_mb = 0.125

    found = rank_pools.of(world_size).run(live_bytes_of_training, stage=stage, dtype=dtype, bucket_mb=bucket_mb)

    bucket = bucket_mb * MEBIBYTE
    wanted = formula(stage, dtype, world_size) * 20 * 128 * 128
    assert all(0.98 * wanted < each < 1.02 * wanted + bucket for each in found), (found, wanted, bucket)


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
    train(model, optimizer, WIDTH, torch.float32, 1)
    optimizer.close()


def peak_of_training(rank: int, world_size: int, *, stage: Any, count: int) -> int:
    """Of building a model and three steps."""
    give_memory_back_at_once()
    warm_up()
    dist.barrier()
    before = reset_peak()
    model = layers(count, WIDTH, torch.float32)
    optimizer = ShardedOptimizer(model, torch.optim.AdamW, lr=1e-3, stage=stage, bucket_mb=2, persistent_elements=1)
    train(model, optimizer, WIDTH, torch.float32, 3)
    return peak() - before


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_peak_of_the_process_grows_with_the_model_as_the_formula_says(tmp_path: Path, stage: int) -> None:
    counts = (12, 48)

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
    train(model, optimizer, WIDTH, torch.float32, 3)
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
