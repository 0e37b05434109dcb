from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from shardkeep.pytorch.captured import CapturedValue
from shardkeep.pytorch.data import PositionWatch, items_of_every_rank, sort_items
from shardkeep.pytorch.marks import PerRank
from shardkeep.pytorch.sampler import ResumableSampler

DATASET = TensorDataset(torch.arange(8))


class SelfCounting(DataLoader[Any]):
    def state_dict(self) -> dict[str, int]:
        return {"yielded": 3}

    def load_state_dict(self, state: dict[str, int]) -> None: ...


class Stream:
    def __iter__(self) -> Iterator[int]:
        return iter(())

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None: ...


def test_each_kind_of_item_goes_where_it_belongs() -> None:
    model = nn.Linear(1, 1)
    sampler = ResumableSampler(8, batch_size=2)
    items = sort_items(
        {
            "model": model,
            "optimizer": torch.optim.AdamW(model.parameters()),
            "ema": torch.zeros(2),
            "loop": {"best": 1.0},
            "noise": np.random.default_rng(0),
            "order": random.Random(0),
            "drop": torch.Generator(),
            "loader": SelfCounting(DATASET),
            "sampler": sampler,
            "batches": sampler.loader(DATASET),
            "stream": Stream(),
        }
    )

    assert set(items.generators) == {"noise", "order", "drop"}
    assert isinstance(items.state["loader"], PerRank)
    assert items.samplers == {"sampler": sampler, "batches": sampler}
    assert items.state["batches"] is sampler
    assert items.positions == ["loader", "sampler", "batches", "stream"]
    assert items.valued == ["loop", "loader", "sampler", "batches", "stream"]


def test_E65_positions_and_shared_values_must_be_on_every_rank_and_per_rank_ones_need_not() -> None:
    items = sort_items({"loader": SelfCounting(DATASET), "notes": PerRank({"host": "a"}), "loop": {"best": 1.0}})
    values = {
        "loader": [CapturedValue(("loader",), {}, per_rank=True)],
        "notes": [CapturedValue(("notes",), {"host": "a"}, per_rank=True)],
        "loop": [CapturedValue(("loop", "best"), 1.0)],
    }
    assert items_of_every_rank(values, items) == ["loader", "loop"]


def test_the_schedule_of_a_stage_need_not_be_on_every_rank() -> None:
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters())
    items = sort_items({"schedule1": torch.optim.lr_scheduler.StepLR(optimizer, 1)})
    assert items_of_every_rank({"schedule1": [CapturedValue(("schedule1", "last_epoch"), 1)]}, items) == []


def test_E62_a_data_position_that_stands_still_between_steps_is_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = PositionWatch()

    def at(position: int) -> dict[str, list[CapturedValue]]:
        return {"data": [CapturedValue(("data", "samples"), position)]}

    assert watch.check(10, at(40), ["data"]) == []
    assert watch.check(10, at(40), ["data"]) == [], "the same step may be saved twice"
    assert watch.check(20, at(80), ["data"]) == []
    assert watch.check(30, at(80), ["data"]) == ["data"]
    assert "'data' is the same at step 30 as at step 20" in caplog.text
