"""What tests of single things need: an optimizer with several buckets, one backward, comparisons, what is sent."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from shardkeep.zero import ShardedOptimizer
from shardkeep.zero.collectives import Collectives, PendingSum
from tests.distributed.zero.oracle import (
    Stage,
    tiny_losses,
)

RATE: dict[str, Any] = {"lr": 0.1}


def over(model: nn.Module, stage: Stage, inner: type[torch.optim.Optimizer] = torch.optim.SGD, **options: Any) -> Any:
    """An optimizer with several buckets and units."""
    return ShardedOptimizer(
        model, inner, stage=stage, **{"bucket_mb": 0.0004, "persistent_elements": 20, **RATE, **options}
    )


def backward(model: nn.Module, rank: int, *, step: int = 0, micro_batch: int = 0) -> None:
    tiny_losses(model, step, micro_batch, rank, 1)[0].backward()


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], note: object = "") -> None:
    assert found.keys() == wanted.keys(), note
    for name, value in found.items():
        assert torch.equal(value, wanted[name]), (note, name)


def assert_near(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], note: object = "") -> None:
    assert found.keys() == wanted.keys(), note
    for name, value in found.items():
        torch.testing.assert_close(value, wanted[name], rtol=1e-5, atol=1e-6, msg=f"{note} {name}")


class OneVector(nn.Module):
    """One parameter that ranks cut."""

    def __init__(self, size: int = 37) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.zeros(size))

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        return (self.one * factor).sum()


class Recorder(Collectives):
    """Notes what is sent, and that nothing under way is written."""

    def __init__(self, inner: Collectives) -> None:
        super().__init__(inner._group)
        self.sent: list[int] = []
        self._flying: list[tuple[PendingSum, torch.Tensor]] = []

    def start_sum(self, flat: torch.Tensor, bounds: Any) -> PendingSum:
        self._flying = [(one, copy) for one, copy in self._flying if one.work is not None]
        for one, copy in self._flying:
            assert torch.equal(one.sent, copy), "written while it was under way"
            assert one.sent.untyped_storage().data_ptr() != flat.untyped_storage().data_ptr()
        pending = super().start_sum(flat, bounds)
        self.sent.append(flat.numel())
        self._flying.append((pending, flat.clone()))
        return pending


def record(optimizer: ShardedOptimizer) -> Recorder:
    found = Recorder(optimizer._collectives)
    optimizer._rounds._collectives = found
    return found
