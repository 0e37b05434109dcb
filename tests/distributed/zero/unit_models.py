"""Models that use their parameters in the ways that stage 3 must be right for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, weight_norm
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

WIDTH = 6


class Block(nn.Module):
    """Two linear layers and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 11)
        self.down = nn.Linear(11, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.down(functional.gelu(self.up(x)))


class Plain(nn.Module):
    """A few blocks, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> Any:
        for block in self.blocks:
            x = self.run(block, x)
        return self.head(x)

    def run(self, block: nn.Module, x: torch.Tensor) -> Any:
        return block(x)


class Checkpointed(Plain):
    """Its blocks are run again in backward."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x.requires_grad_())

    def run(self, block: nn.Module, x: torch.Tensor) -> Any:
        return checkpoint(block, x, **self.options)


class CheckpointedWithoutEarlyStop(Checkpointed):
    def forward(self, x: torch.Tensor) -> Any:
        with set_checkpoint_early_stop(enable=False):
            return super().forward(x)


class CheckpointedInPart(Plain):
    """A checkpoint that ends in the middle of a block, and one inside of another."""

    def forward(self, x: torch.Tensor) -> Any:
        first, middle, last = cast("list[Block]", list(self.blocks))

        def two(x: torch.Tensor) -> Any:
            x = checkpoint(first, x, use_reentrant=False)
            return middle.up(x)

        x = checkpoint(two, x, use_reentrant=False)
        return self.head(last(middle.down(x)))


class SavedElsewhere(Plain):
    """Activations are kept by hooks of the user's."""

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autograd.graph.save_on_cpu():
            return super().forward(x)


class Autocast(Plain):
    """Casts its weights, and keeps the casts for all of its forward."""

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x) + self.head(self.blocks[0](x))


class CalledTwice(Plain):
    def forward(self, x: torch.Tensor) -> Any:
        for block in (*self.blocks, *self.blocks, self.blocks[1], self.blocks[1]):
            x = block(x)
        return self.head(x)


class CalledTwiceOnceWithoutGradient(Plain):
    def forward(self, x: torch.Tensor) -> Any:
        x = self.blocks[0](x)
        with torch.no_grad():
            target = self.blocks[0](x)
        return self.head(self.blocks[1](x) - target) + self.head(self.blocks[2](x))


class Recursive(nn.Module):
    """A module that calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: torch.Tensor, depth: int = 3) -> Any:
        if depth == 0:
            return x * self.scale
        return self(torch.tanh(self.own(x)), depth=depth - 1) * self.scale


class Aside(nn.Module):
    """Gives back what has no gradient, and what has lies aside."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Linear(WIDTH, WIDTH)
        self.aside = torch.zeros(())

    def forward(self, x: torch.Tensor) -> Any:
        found = self.own(x)
        self.aside = self.own(found).square().mean()
        return found.argmax(-1)


class ManyOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.aside = Aside()

    def forward(self, *, given: dict[str, torch.Tensor]) -> dict[str, Any]:
        x = given["x"]
        y = self.second(self.first(x).relu_()).mul_(2)
        return {"y": y, "both": (y.sum(), [y.sin(), y.detach()]), "class": self.aside(y), "none": None}


class ManyOutputsModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = ManyOutputs()

    def forward(self, x: torch.Tensor) -> Any:
        found = self.parts(given={"x": x})
        total, (sines, _) = found["both"]
        return found["y"] + total * 0.01 + sines + found["class"].unsqueeze(-1) * self.parts.aside.aside


class Positions(nn.Module):
    """Gives back its parameter, and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, WIDTH))

    def forward(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.table[:count], self.table


class RootParameters(nn.Module):
    """Parameters of the root itself, in lists and dictionaries too, and a module that gives its own back."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(WIDTH))
        self.rows = nn.ParameterList([nn.Parameter(torch.randn(WIDTH)) for _ in range(2)])
        self.named = nn.ParameterDict(
            {"left": nn.Parameter(torch.randn(WIDTH, 4)), "none": nn.Parameter(torch.ones(0))}
        )
        self.positions = Positions()

    def forward(self, x: torch.Tensor) -> Any:
        rows, table = self.positions(len(x))
        x = (x + rows) * self.scale + self.rows[0] * self.rows[1] + table.sum(0)
        return x @ self.named["left"]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        )
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.encoder(x.unsqueeze(0))
        return self.attention(x, x, x, need_weights=False)[0]


class Tied(nn.Module):
    """An embedding that is the head as well, with a bias of the head's own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, WIDTH)
        self.block = Block()
        self.head = nn.Linear(WIDTH, 7)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.block(self.embedding(x.abs().long() % 7).sum(1)))


class Adapted(nn.Module):
    """Frozen, but for a part of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False)
        self.down = nn.Linear(WIDTH, 2, bias=False)
        self.up = nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.tanh(self.base(x)) + self.up(self.down(x))


class Partly(nn.Module):
    """Uses one of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Parameter(torch.randn(WIDTH))
        self.unused = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: torch.Tensor) -> Any:
        return x * self.used


class Unused(Plain):
    """Some of it is not used, and other parts in other forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Linear(WIDTH, WIDTH)
        self.partly = Partly()

    def forward(self, x: torch.Tensor) -> Any:
        is_used = torch.is_grad_enabled()
        x = self.blocks[0](x)
        if is_used:
            x = self.blocks[1](self.partly(x))
        return self.head(x)


class Mixed(nn.Module):
    """A module of two dtypes, and one without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = Parts()

    def forward(self, x: torch.Tensor) -> Any:
        return self.inside(x)


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.full = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.bf16 = nn.Parameter(torch.randn(WIDTH, WIDTH).to(torch.bfloat16))
        self.empty = nn.Parameter(torch.empty(0, WIDTH))

    def forward(self, x: torch.Tensor) -> Any:
        found = (x @ self.full).to(torch.bfloat16) @ self.bf16
        return found.float() + self.empty.sum()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 5, num_layers=2, bidirectional=True)
        self.gru = nn.GRU(10, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        return self.gru(self.lstm(x.unsqueeze(1))[0])[0]


class Parametrized(nn.Module):
    """Weights that are computed from parameters, by a module or by a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.by_module = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.orthogonal = parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH), orthogonal_map="cayley")
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            self.by_hook = weight_norm(nn.Linear(WIDTH, WIDTH))
        self.convolution = nn.Conv1d(1, 2, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.orthogonal(self.by_module(x))
        return self.convolution(self.by_hook(x).unsqueeze(1)).flatten(1)


class Doubled(torch.autograd.Function):
    """x @ weight.T, twice, by hand."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> Any:
        ctx.save_for_backward(x, weight)
        return 2 * x @ weight.T

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight = ctx.saved_tensors
        return 2 * gradients[0] @ weight, 2 * gradients[0].T @ x


class ByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = HandMade()
        self.last = HandMade()

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(torch.tanh(self.first(x)))


class HandMade(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> Any:
        return Doubled.apply(x, self.weight)  # type: ignore[no-untyped-call]


class ByKeyword(Plain):
    """Inputs come by name, with the first blocks frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(requires_grad=False)
        self.blocks[0].up.requires_grad_()

    def run(self, block: nn.Module, x: torch.Tensor) -> Any:
        return block(x=x)


def batch(step: int, micro_batch: int, rank: int) -> torch.Tensor:
    """Inputs, others everywhere."""
    generator = torch.Generator().manual_seed(1_000_003 * step + 1009 * micro_batch + rank)
    return torch.randn(5, WIDTH, generator=generator)


def losses(model: nn.Module, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
    """Losses of one forward."""
    output = model(batch(step, micro_batch, rank)).float()
    return [output.square().mean(), output.sin().sum() * 0.1][:count]


def penalized_losses(model: nn.Module, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
    """The gradient of the inputs is in the loss: a graph of a backward."""
    x = batch(step, micro_batch, rank).requires_grad_()
    output = model(x).float()
    (slope,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
    return [slope.square().mean() + output.mean(), slope.sin().sum() * 0.1][:count]


def joint_losses(model: nn.Module, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
    """Of two forwards, with one that has no backward between them."""
    first = model(batch(step, micro_batch, rank)).float()
    with torch.no_grad():
        model.eval()
        shift = float(model(batch(step, micro_batch + 7, rank)).float().mean())
        model.train()
    model(batch(step, micro_batch + 9, rank))  # a graph that nobody uses
    second = model(batch(step, micro_batch + 5, rank)).float()
    return [(first * second).mean() + shift * first.sum(), second.sin().sum() * 0.1][:count]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": Plain,
    "checkpointed, reentrant": lambda: Checkpointed(use_reentrant=True),
    "checkpointed, not reentrant": lambda: Checkpointed(use_reentrant=False),
    "checkpointed, without early stop": lambda: CheckpointedWithoutEarlyStop(use_reentrant=False),
    "checkpointed in part": CheckpointedInPart,
    "saved elsewhere": SavedElsewhere,
    "autocast": Autocast,
    "called twice": CalledTwice,
    "called twice, once without gradient": CalledTwiceOnceWithoutGradient,
    "recursive": Recursive,
    "many outputs": ManyOutputsModel,
    "parameters of the root": RootParameters,
    "attention": Attention,
    "tied": Tied,
    "adapted": lambda: nn.Sequential(*[Adapted() for _ in range(3)]),
    "unused": Unused,
    "mixed dtypes": Mixed,
    "recurrent": Recurrent,
    "parametrized": Parametrized,
    "by hand": ByHand,
    "by keyword": ByKeyword,
}


def make(name: str) -> nn.Module:
    """A model, the same on every rank."""
    torch.manual_seed(3)
    return MODELS[name]()
