"""The model that the contenders of `bench.zero` train, and its data: blocks of a norm and two matrices, as in the
feed-forward part of a transformer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

_SEED = 20


@dataclass(frozen=True, slots=True)
class ModelSize:
    """`rows` of data a rank and step decide how much is computed for each byte that is sent."""

    width: int
    blocks: int
    rows: int


class Block(nn.Module):
    """Norm, widen four times, narrow; with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """`x` is (rows, width)."""
        fed: Tensor = self.narrow(nn.functional.gelu(self.wide(self.norm(x))))
        return x + fed


class Blocks(nn.Module):
    """Blocks one after another, and a last norm."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(size.width) for _ in range(size.blocks)))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, x: Tensor) -> Tensor:
        """`x` is (rows, width)."""
        out: Tensor = self.norm(self.blocks(x))
        return out


def build_model(size: ModelSize) -> Blocks:
    """The same weights each time, on every rank."""
    torch.manual_seed(_SEED)
    return Blocks(size)


def batch(size: ModelSize, *, step: int, rank: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a step, other ones on each rank."""
    generator = torch.Generator().manual_seed(1_000 * step + rank)
    inputs = torch.randn(size.rows, size.width, generator=generator)
    return inputs, inputs.roll(1, dims=1)


def loss_of(model: nn.Module, data: tuple[Tensor, Tensor]) -> Tensor:
    """The mean squared error."""
    return nn.functional.mse_loss(model(data[0]), data[1])
