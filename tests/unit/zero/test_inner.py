"""The inner optimizer of one tile: state by its first real step, options as they are now, wrong layouts refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from shardkeep.errors import ConfigurationError
from shardkeep.zero.inner import InnerTile, StepOptions
from shardkeep.zero.layout import ParameterSpec, Slice

SPECS = [ParameterSpec("a", (2, 3), "torch.float32", 4), ParameterSpec("b", (4,), "torch.float32", 4)]
SLICES = [Slice(0, 2, 6, 10), Slice(1, 0, 4, 14)]
"""Of a tile that begins at element 10."""


class CountsInGroup(Optimizer):
    """Counts steps in its groups, as many do; steps by the count."""

    def __init__(self, params: Any, lr: float = 1.0, count: int = 0) -> None:
        super().__init__(params, {"lr": lr, "count": count})

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["count"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.add_(parameter.grad, alpha=group["lr"] * group["count"])


class KeepsRows(Optimizer):
    """Keeps one number for each row, as if it were given a matrix."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["rows"] = torch.zeros(2)


def tile(factory: Callable[..., Optimizer], *, whole: bool = False, slices: Sequence[Slice] = SLICES) -> InnerTile:
    return InnerTile(
        factory, slices, SPECS, [0, 1], begin=10, whole=whole, dtype=torch.float32, device=torch.device("cpu")
    )


def groups(**options: Any) -> list[dict[str, Any]]:
    return [{"params": [nn.Parameter(torch.zeros(1))], "param_names": [name], **options} for name in "ab"]


def every(_index: int) -> bool:
    return True


def test_leaves_are_views_of_the_tiles_memory() -> None:
    inner, master = tile(torch.optim.SGD), torch.arange(8.0)

    inner.point(master, torch.ones(8))

    assert torch.equal(inner.leaves[0], torch.arange(4.0))
    assert torch.equal(inner.leaves[1], torch.arange(4.0, 8.0))
    assert inner.leaves[1].data_ptr() == master[4:].data_ptr()
    inner.release()
    assert all(leaf.numel() == 0 and leaf.grad is None for leaf in inner.leaves.values())


def test_whole_leaves_have_the_parameters_shapes() -> None:
    inner = tile(torch.optim.SGD, whole=True, slices=[Slice(0, 0, 6, 10)])

    inner.point(torch.arange(6.0), None)

    assert inner.leaves[0].shape == (2, 3)


def test_state_is_made_by_the_first_step_and_only_of_what_was_touched() -> None:
    inner, found = tile(torch.optim.AdamW), groups(lr=0.1, weight_decay=0.5)
    master = torch.ones(8)

    assert inner.state == {}
    inner.point(master, torch.ones(8))
    inner.step(StepOptions(found), lambda index: index == 1)

    assert inner.state.keys() == {1}
    assert torch.equal(master[:4], torch.ones(4))
    assert not torch.equal(master[4:], torch.ones(4))


def test_nothing_is_made_when_nothing_was_touched() -> None:
    made: list[Any] = []
    inner = tile(lambda given: made.append(given) or torch.optim.SGD(given))  # type: ignore[func-returns-value]
    inner.point(torch.ones(8), torch.ones(8))

    inner.step(StepOptions(groups(lr=0.1)), lambda _: False)

    assert not made


def test_options_are_those_of_the_groups_now_for_each_group() -> None:
    inner, found = tile(torch.optim.SGD), groups(lr=1.0)
    master = torch.zeros(8)
    inner.point(master, torch.ones(8))
    inner.step(StepOptions(found), every)

    found[1]["lr"] = 0.25
    inner.step(StepOptions(found), every)

    assert torch.equal(master, torch.tensor([-2.0] * 4 + [-1.25] * 4))


def test_what_an_optimizer_keeps_in_its_groups_moves_on_once_a_step_whatever_the_tiles() -> None:
    tiles, found = [tile(CountsInGroup), tile(CountsInGroup)], groups(lr=1.0, count=0)
    masters = [torch.zeros(8), torch.zeros(8)]
    for _ in range(2):
        options = StepOptions(found)
        for inner, master in zip(tiles, masters, strict=True):
            inner.point(master, torch.ones(8))
            inner.step(options, every)
        options.keep()

    assert [group["count"] for group in found] == [2, 2]
    assert all(torch.equal(master, torch.full((8,), 3.0)) for master in masters)
    assert "of_group" not in found[0]


def test_a_tensor_learning_rate_stays_the_users() -> None:
    rate = torch.tensor(0.5)
    inner, found = tile(torch.optim.AdamW), groups(lr=rate)
    inner.point(torch.ones(8), torch.ones(8))
    options = StepOptions(found)

    inner.step(options, every)
    options.keep()

    assert all(group["lr"] is rate for group in found)


def test_state_that_is_set_has_the_leafs_shape_and_none_forgets_it() -> None:
    inner = tile(torch.optim.AdamW, whole=True, slices=[Slice(0, 0, 6, 10)])
    inner.point(torch.ones(6), None)
    found = groups(lr=0.1)

    inner.set_state(0, {"exp_avg": torch.arange(6.0), "step": torch.tensor(3.0)}, found)
    assert inner.state[0]["exp_avg"].shape == (2, 3)
    assert inner.state[0]["step"].shape == ()
    inner.set_state(0, None, found)

    assert inner.state == {}


def test_state_that_is_not_elementwise_asks_for_the_whole_layout() -> None:
    inner = tile(KeepsRows)
    inner.point(torch.ones(8), torch.ones(8))

    with pytest.raises(ConfigurationError, match="rows of shape"):
        inner.step(StepOptions(groups()), every)


def test_state_of_any_shape_is_taken_with_the_whole_layout() -> None:
    inner = tile(KeepsRows, whole=True, slices=[Slice(0, 0, 6, 10)])
    inner.point(torch.ones(6), torch.ones(6))

    inner.step(StepOptions(groups()), every)

    assert inner.state[0]["rows"].shape == (2,)
