"""State on NVMe in one process: bit-equal to the plain optimizer, within its budget, and clear when the disk is not."""

from __future__ import annotations

import errno
import gc
import os
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.pytorch.capture import TrainingState
from shardkeep.zero import NvmeOffload, ShardedOptimizer
from shardkeep.zero.nvme import NvmeStore
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint
from tests.unit.zero.test_scratch_file import largest_file

BUDGET = 40_000
OPTIONS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1}


class Wide(nn.Module):
    """Layers of several tiles each."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(7, 31)
        self.second = nn.Linear(31, 33)
        self.last = nn.Linear(33, 3)
        self.to(dtype)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(torch.tanh(self.second(torch.tanh(self.first(batch)))))
        return output


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.fixture(params=[1, 2, 3])
def stage(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def build(model: nn.Module, scratch: Path, **options: Any) -> ShardedOptimizer:
    given: dict[str, Any] = {
        "inner": torch.optim.AdamW,
        "offload": NvmeOffload(scratch, options.pop("budget", BUDGET)),
        "persistent_elements": 20,
        **OPTIONS,
        **options,
    }
    return ShardedOptimizer(model, **given)


def batch_of(step: int) -> torch.Tensor:
    return torch.randn(4, 7, generator=torch.Generator().manual_seed(step))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range | list[int]) -> None:
    for step in steps:
        optimizer.zero_grad()
        batch = batch_of(step).to(next(model.parameters()).dtype)
        model(batch).float().square().mean().backward()
        optimizer.step()


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def plain(steps: int, **options: Any) -> dict[str, torch.Tensor]:
    model = Wide()
    train(model, torch.optim.AdamW(model.parameters(), **{**OPTIONS, **options}), range(steps))
    return weights(model)


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert not [name for name in wanted if not torch.equal(found[name], wanted[name])]


def store_of(optimizer: ShardedOptimizer) -> NvmeStore:
    store = optimizer._nvme
    assert store is not None
    return store


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def save(model: nn.Module, optimizer: torch.optim.Optimizer) -> MemoryCheckpoint:
    return MemoryCheckpoint.of(TrainingState({"model": model, "optimizer": optimizer}).capture())


def load(saved: MemoryCheckpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    TrainingState({"model": model, "optimizer": optimizer}).restore(saved, rank=0, world_size=1)


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"foreach": False}, {"fused": True}])
def test_training_is_bit_equal_to_the_plain_optimizer(scratch: Path, stage: int, options: dict[str, Any]) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage, **options)

    train(model, optimizer, range(3))

    assert_same(weights(model), plain(3, **options))
    optimizer.close()


def test_an_optimizer_with_more_state_gets_fewer_sets_of_buffers(scratch: Path) -> None:
    held = {}
    for amsgrad in (False, True):
        model = Wide()
        optimizer = build(model, scratch, stage=2, amsgrad=amsgrad, budget=140_000)
        train(model, optimizer, range(3))
        store = store_of(optimizer)
        held[amsgrad] = store.traffic.held_bytes // store.traffic.set_bytes
        assert store.traffic.held_bytes <= store.division.tile_bytes
        optimizer.close()

    assert held == {False: 3, True: 3}


def test_a_whole_layout_cuts_no_parameter(scratch: Path) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=2, layout="whole")

    train(model, optimizer, range(2))

    parts = {name: len(optimizer.state_parts(one)) for name, one in model.named_parameters()}
    assert set(parts.values()) == {1}
    assert_same(weights(model), plain(2))
    optimizer.close()


def test_a_parameter_lies_in_several_tiles(scratch: Path) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=2)

    train(model, optimizer, range(1))
    parts = optimizer.state_parts(model.second.weight)

    assert len(parts) > 1
    assert [part.stop for part in parts[:-1]] == [part.start for part in parts[1:]]
    optimizer.close()


def test_parameters_added_later_are_offloaded_too(scratch: Path) -> None:
    model, reference = Wide(), Wide()
    optimizer = build(model, scratch, stage=2, params=list(model.first.parameters()))
    expected = torch.optim.AdamW(reference.first.parameters(), **OPTIONS)
    for one, each in ((model, optimizer), (reference, expected)):
        train(one, each, range(1))
        each.add_param_group({"params": [*one.second.parameters(), *one.last.parameters()], "lr": 1e-3})
        train(one, each, range(1, 3))

    assert_same(weights(model), weights(reference))
    optimizer.close()


def test_fault_51_training_and_saving_leave_descriptors_and_memory_as_they_are(scratch: Path, stage: int) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage)
    train(model, optimizer, range(1))
    save(model, optimizer)
    before = descriptors(), store_of(optimizer).file.size_bytes, store_of(optimizer).traffic.held_bytes

    for step in range(1, 6):
        train(model, optimizer, [step])
        save(model, optimizer)

    assert (descriptors(), store_of(optimizer).file.size_bytes, store_of(optimizer).traffic.held_bytes) == before
    optimizer.close()


def test_fault_51_closing_and_forgetting_give_every_descriptor_back(scratch: Path) -> None:
    before = descriptors()
    for closes in (True, False):
        model = Wide()
        optimizer = build(model, scratch, stage=2)
        train(model, optimizer, range(2))
        if closes:
            optimizer.close()
        del model, optimizer

    assert descriptors() == before


@pytest.mark.parametrize("on_nvme", [False, True])
def test_an_optimizer_that_is_forgotten_is_collected(scratch: Path, stage: int, *, on_nvme: bool) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage, **({} if on_nvme else {"offload": None}))
    train(model, optimizer, range(2))
    forgotten = weakref.ref(model), weakref.ref(optimizer)

    del model, optimizer
    gc.collect()

    assert [one() for one in forgotten] == [None, None]


def test_fault_51_only_some_parameters_may_be_optimized(scratch: Path, stage: int) -> None:
    model, reference = Wide(), Wide()
    for one in (model, reference):
        one.first.requires_grad_(requires_grad=False)
    optimizer = build(model, scratch, stage=stage)

    train(model, optimizer, range(2))
    train(reference, torch.optim.AdamW(reference.parameters(), **OPTIONS), range(2))

    assert_same(weights(model), weights(reference))
    optimizer.close()


def test_fault_51_training_goes_on_after_a_save(scratch: Path, stage: int) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage)

    for step in range(3):
        train(model, optimizer, [step])
        save(model, optimizer)

    assert_same(weights(model), plain(3))
    optimizer.close()


def test_fault_51_a_save_waits_until_no_tile_moves(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=2)
    train(model, optimizer, range(1))
    file = store_of(optimizer).file
    write, moving = file.write, []

    def slow(offset: int, data: memoryview) -> None:
        moving.append(offset)
        for _ in range(200):
            write(offset, data)
        moving.remove(offset)

    monkeypatch.setattr(file, "write", slow)
    model(batch_of(1)).square().mean().backward()
    optimizer.state_parts(model.first.weight)

    assert moving == []
    optimizer.close()


def test_fault_52_parameters_come_from_the_disk_in_their_own_dtype(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Wide(torch.bfloat16)
    optimizer = build(model, scratch, stage=3)
    train(model, optimizer, range(1))
    file, sizes = store_of(optimizer).file, []
    read = file.read

    def noted(offset: int, out: memoryview) -> None:
        sizes.append(len(out))
        read(offset, out)

    monkeypatch.setattr(file, "read", noted)
    with torch.no_grad():
        model(batch_of(1).bfloat16())

    elements = sum(one.numel() for one in model.parameters())
    assert 2 * elements <= sum(sizes) < 2 * elements + 64 * len(sizes)
    optimizer.close()


def test_fault_53_groups_keep_their_settings_in_every_tile(scratch: Path, stage: int) -> None:
    model, reference = Wide(), Wide()

    def groups(of: Wide) -> list[dict[str, Any]]:
        biases = [one for one in of.parameters() if one.ndim == 1]
        matrices = [one for one in of.parameters() if one.ndim == 2]
        return [{"params": matrices, "weight_decay": 0.3, "betas": (0.8, 0.9)}, {"params": biases, "lr": 3e-3}]

    optimizer = build(model, scratch, stage=stage, params=groups(model))

    train(model, optimizer, range(3))
    train(reference, torch.optim.AdamW(groups(reference), **OPTIONS), range(3))

    assert_same(weights(model), weights(reference))
    optimizer.close()


def test_fault_54_a_scheduler_reaches_every_tile(scratch: Path) -> None:
    model, reference = Wide(), Wide()
    optimizer: torch.optim.Optimizer
    for one, optimizer in (
        (model, build(model, scratch, stage=2)),
        (reference, torch.optim.AdamW(reference.parameters(), **OPTIONS)),
    ):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for step in range(3):
            train(one, optimizer, [step])
            scheduler.step()

    assert_same(weights(model), weights(reference))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fault_54_weights_loaded_after_construction_are_stepped(scratch: Path, stage: int, dtype: torch.dtype) -> None:
    model, other = Wide(dtype), Wide(dtype)
    with torch.no_grad():
        for one in other.parameters():
            one.mul_(2.0)
    optimizer = build(model, scratch, stage=stage)
    fresh = build(other, scratch, stage=stage)

    model.load_state_dict(other.state_dict())
    train(model, optimizer, range(2))
    train(other, fresh, range(2))

    assert_same(weights(model), weights(other))
    optimizer.close()
    fresh.close()


# --- saving and loading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("to_nvme", [False, True])
def test_what_nvme_saved_goes_on_anywhere(scratch: Path, stage: int, dtype: torch.dtype, *, to_nvme: bool) -> None:
    model = Wide(dtype)
    optimizer = build(model, scratch, stage=stage)
    train(model, optimizer, range(2))
    saved = save(model, optimizer)
    train(model, optimizer, range(2, 4))

    target = Wide(dtype)
    other = build(target, scratch, stage=2, **({} if to_nvme else {"offload": None}))
    if to_nvme:
        train(target, other, range(7, 9))
    load(saved, target, other)
    again = save(target, other)
    train(target, other, range(2, 4))

    assert {one.name: saved.tensor_bytes(one.name) for one in saved.tensors()} == {
        one.name: again.tensor_bytes(one.name) for one in again.tensors()
    }
    assert_same(weights(target), weights(model))


def test_what_memory_saved_goes_on_on_nvme(scratch: Path, stage: int) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=2, offload=None)
    train(model, optimizer, range(2))
    saved = save(model, optimizer)

    target = Wide()
    other = build(target, scratch, stage=stage)
    load(saved, target, other)
    train(target, other, range(2, 4))

    assert_same(weights(target), plain(4))


def test_state_that_is_loaded_lies_on_the_disk_until_it_is_stepped(scratch: Path, stage: int) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage)
    train(model, optimizer, range(1))
    saved = save(model, optimizer)
    before = descriptors()

    load(saved, model, optimizer)
    loaded = descriptors()
    saved.requests.clear()  # it keeps what it was read into
    train(model, optimizer, range(1, 3))

    assert (loaded, descriptors()) == (before + 1, before)
    assert_same(weights(model), plain(3))
    optimizer.close()


# --- the budget -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["flat", "whole"])
def test_a_budget_that_is_too_small_says_what_is_needed(scratch: Path, stage: int, layout: str) -> None:
    with pytest.raises(ConfigurationError, match=r"budget_bytes=100 does not hold .*: give at least") as raised:
        build(Wide(), scratch, stage=stage, layout=layout, budget=100)
    needed = int(re.findall(r"at least (\d+)", str(raised.value))[0])

    model = Wide()
    optimizer = build(model, scratch, stage=stage, layout=layout, budget=needed)
    train(model, optimizer, range(2))

    assert_same(weights(model), plain(2))
    optimizer.close()


def test_the_budget_must_exceed_two_of_the_largest_module(scratch: Path) -> None:
    largest = 4 * sum(one.numel() for one in Wide().second.parameters())

    with pytest.raises(ConfigurationError, match="two of the largest module"):
        build(Wide(), scratch, stage=3, budget=2 * largest)


def test_buckets_are_cut_to_the_budget(scratch: Path) -> None:
    optimizer = build(Wide(), scratch, stage=2, budget=30_000)

    division = store_of(optimizer).division
    assert division.gradient_bytes + division.tile_bytes == 30_000
    assert division.gradient_bytes < 3 * 4 * 7 * 31 + 3 * 4 * 31 * 33 + 3 * 4 * 31
    optimizer.close()


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_at_construction(scratch: Path) -> None:
    with largest_file(4096), pytest.raises(StateError, match="the disk is full"):
        build(Wide(), scratch, stage=3)


def test_a_disk_too_full_for_the_state_is_said_by_the_first_step(scratch: Path) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=2)

    with largest_file(store_of(optimizer).file.size_bytes), pytest.raises(StateError, match="the disk is full"):
        train(model, optimizer, range(1))
    with pytest.raises(StateError, match=r"the last step\(\) raised before all parameters were stepped"):
        train(model, optimizer, range(1))
    with pytest.raises(StateError, match=r"the last step\(\) raised"):
        save(model, optimizer)
    optimizer.close()


@pytest.fixture
def failing_writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many writes go well yet; the next says that the disk is full."""
    left = [10**9]
    write = os.pwritev

    def limited(fd: int, views: list[memoryview], offset: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, views, offset)

    monkeypatch.setattr(os, "pwritev", limited)
    yield left
    left[0] = 10**9


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_after_a_write_that_failed_in_a_step_only_a_load_goes_on(
    scratch: Path, stage: int, failing_writes: list[int], writes: int
) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage)
    train(model, optimizer, range(2))
    saved = save(model, optimizer)
    model(batch_of(7)).square().mean().backward()
    store_of(optimizer).drain()

    failing_writes[0] = writes
    with pytest.raises(StateError, match="No space left on device"):
        optimizer.step()
    failing_writes[0] = 10**9
    with pytest.raises(StateError, match=r"the last step\(\) raised"):
        optimizer.step()
    load(saved, model, optimizer)
    train(model, optimizer, range(2, 4))

    assert_same(weights(model), plain(4))
    optimizer.close()


def test_a_gradient_that_cannot_be_written_is_said_and_can_be_dropped(scratch: Path, failing_writes: list[int]) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=2)
    train(model, optimizer, range(1))

    failing_writes[0] = 2
    with pytest.raises(StateError, match="No space left on device"):  # noqa: PT012
        model(batch_of(1)).square().mean().backward()
        optimizer.clip_grad_norm_(1.0)
    failing_writes[0] = 10**9
    train(model, optimizer, range(1, 3))

    assert_same(weights(model), plain(3))
    optimizer.close()


def test_a_scratch_file_that_was_cut_is_said_and_not_trained_on(scratch: Path, stage: int) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage)
    train(model, optimizer, range(1))
    model(batch_of(1)).square().mean().backward()
    store_of(optimizer).drain()

    os.truncate(store_of(optimizer).file._fd, 5000)

    with pytest.raises(StateError, match="something outside cut it"):
        optimizer.step()
    with pytest.raises(StateError, match=r"the last step\(\) raised"):
        optimizer.step()
    store_of(optimizer).close()


def test_nothing_is_left_in_the_directory_at_any_time(scratch: Path, stage: int) -> None:
    model = Wide()
    optimizer = build(model, scratch, stage=stage)
    during = list(scratch.iterdir())
    train(model, optimizer, range(1))

    assert during == list(scratch.iterdir()) == []
    optimizer.close()
