"""Trials of the data order over resumes that go through the service, with loader workers that run ahead."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from torch.utils.data import Dataset

import shardkeep as sk

LENGTH, BATCH = 64, 4
EPOCH = LENGTH // BATCH


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index


def make_sampler() -> sk.ResumableSampler:
    return sk.ResumableSampler(LENGTH, batch_size=BATCH, seed=3)


def reference(batches: int) -> list[list[int]]:
    return [batch.tolist() for batch in islice(make_sampler().loader(Numbers()), batches)]


def launch(client: sk.Client, run: str, batches: int, *, micro_batches: int = 1, workers: int = 2) -> list[list[int]]:
    """One launch: resume, train so many batches, save at the last; the indices seen."""
    sampler = make_sampler()
    seen: list[list[int]] = []
    with sk.Checkpointer(client.run(run), data=sampler) as keeper:
        step = keeper.resume()
        loader: Any = sampler.loader(Numbers(), num_workers=workers)
        for batch in islice(loader, batches):
            seen.append(batch.tolist())
            if len(seen) % micro_batches == 0:
                step += 1
        keeper.save(step)
    return seen


def test_E58_E59_three_epochs_with_a_resume_in_the_middle_equal_the_reference(client: sk.Client) -> None:
    seen = launch(client, "reports/epochs", EPOCH + 4)
    seen += launch(client, "reports/epochs", 2 * EPOCH + 12)
    assert seen == reference(4 * EPOCH)[: len(seen)]
    for epoch in range(3):
        indices = [index for batch in seen[epoch * EPOCH : (epoch + 1) * EPOCH] for index in batch]
        assert sorted(indices) == list(range(LENGTH))


@pytest.mark.parametrize("workers", [0, 2])
def test_E61_E68_a_third_launch_begins_where_the_second_stopped(client: sk.Client, workers: int) -> None:
    run = f"reports/chain-{workers}"
    parts = [launch(client, run, batches, workers=workers) for batches in (30, 10, 5)]
    assert parts[0] + parts[1] + parts[2] == reference(45)
    assert parts[2][0] == reference(41)[40]


def test_E67_after_ten_optimizer_steps_of_four_micro_batches_the_next_batch_is_number_40(client: sk.Client) -> None:
    launch(client, "reports/accumulation", 40, micro_batches=4)
    checkpoint = client.run("reports/accumulation").latest()
    assert checkpoint is not None
    assert checkpoint.step == 10
    assert launch(client, "reports/accumulation", 4, micro_batches=4) == reference(44)[40:]
    position = next(value for path, value in checkpoint.values().items() if path[0] == "data")
    assert "units" in str(checkpoint.values())
    assert position is not None
