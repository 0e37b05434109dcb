"""Trainings that once went wrong somewhere: a model, its losses and options, to be compared with the oracle's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from shardkeep.zero import ShardedOptimizer
from tests.distributed.zero.oracle import (
    STAGES,
    Losses,
    Plan,
    Stage,
    Tiny,
    differences,
    sharded,
    tiny_batch,
    tiny_losses,
    unsharded,
)

THREE_STEPS: Final = (None, 0.3, None)


@dataclass(frozen=True, slots=True)
class Case:
    """`groups` divides parameters, the model's or the oracle's masters; `watch` is given the optimizer once built."""

    make_model: Callable[[], nn.Module] = Tiny
    losses: Losses = tiny_losses
    plan: Plan = field(default_factory=Plan)
    inner: type[Optimizer] = torch.optim.AdamW
    options: Mapping[str, Any] = field(default_factory=lambda: {"lr": 1e-2, "weight_decay": 0.1})
    sharding: Mapping[str, Any] = field(default_factory=dict)
    groups: Callable[[list[Any]], list[dict[str, Any]]] | None = None
    watch: Callable[[Optimizer], None] = lambda _: None
    stages: tuple[Stage, ...] = STAGES


class Parts(nn.Module):
    """Four layers that losses pick from; `zero` has no elements, `half` half a bucket, `full` exactly one."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.a = nn.Linear(7, 7)
        self.zero = nn.Parameter(torch.empty(0, 3))
        self.b = nn.Linear(7, 7, bias=False)
        self.full = nn.Parameter(torch.randn(104))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.c = nn.Linear(7, 3)
        self.to(dtype)

    def forward(self, batch: torch.Tensor, names: str) -> torch.Tensor:
        hidden = batch
        for name in names:
            layer = getattr(self, name)
            hidden = torch.tanh(layer(hidden)) if name != "c" else layer(hidden)
        output: torch.Tensor = hidden * self.scale + self.full.sum() * 0.01 + self.zero.sum()
        return output


def parts_losses(pick: Callable[[int, int, int], str]) -> Losses:
    """Losses of `Parts` through the layers that (step, micro-batch, rank) says, in their order."""

    def losses(model: nn.Module, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
        dtype = next(model.parameters()).dtype
        output = model(tiny_batch(step, micro_batch, rank).to(dtype), pick(step, micro_batch, rank)).float()
        return [output.square().mean(), output.abs().mean()][:count]

    return losses


class Checkpointed(nn.Module):
    """One layer used twice, under checkpoints."""

    def __init__(self, *, reentrant: bool, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.reentrant = reentrant
        self.first = nn.Linear(7, 7)
        self.shared = nn.Linear(7, 7)
        self.last = nn.Linear(7, 3)
        self.to(dtype)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(batch))
        for _ in range(2):
            hidden = torch.tanh(checkpoint(self.shared, hidden, use_reentrant=self.reentrant))
        output: torch.Tensor = self.last(hidden)
        return output


class Tied(nn.Module):
    """An embedding that is the last layer's weight too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embedding = nn.Embedding(11, 5)
        self.middle = nn.Linear(5, 5)
        self.head = nn.Linear(5, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.middle(self.embedding(tokens)))
        return output


class Many(nn.Module):
    """57 parameters of odd sizes (DeepSpeed 1380)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.all = nn.ParameterList([nn.Parameter(torch.randn(size)) for size in range(57)])

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.stack([(one * (batch.sum() + place)).sin().sum() for place, one in enumerate(self.all)])


def tokens_losses(model: nn.Module, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
    tokens = (tiny_batch(step, micro_batch, rank) * 100).long().abs() % 11
    return [nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())][:count]


def unused_everywhere(step: int, micro_batch: int, rank: int) -> str:
    return "ac" if step == 1 else "abc"


def unused_on_some_ranks(step: int, micro_batch: int, rank: int) -> str:
    return "abc" if (rank + step) % 2 else "ac"


def unused_in_some_batches(step: int, micro_batch: int, rank: int) -> str:
    return ("ac", "bc", "abc")[(step + micro_batch) % 3]


def another_order_on_each_rank(step: int, micro_batch: int, rank: int) -> str:
    return ("abc", "bac")[rank % 2]


def two_groups(members: list[Any]) -> list[dict[str, Any]]:
    """Interleaved: every other parameter has its own lr and no weight decay."""
    return [
        {"params": members[::2], "lr": 3e-2, "weight_decay": 0.0},
        {"params": members[1::2]},
    ]


def halve_rate_each_step(optimizer: Optimizer) -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())


def cycle_rate_and_momentum(optimizer: Optimizer) -> None:
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())


def scale_tensor_rate(optimizer: Optimizer) -> None:
    def scale(*_: Any) -> None:
        for group in optimizer.param_groups:
            group["lr"].mul_(0.5)

    optimizer.register_step_post_hook(scale)


BF16: Final = torch.bfloat16
OFFLOAD: Final = {"offload": "cpu"}
ALL: Final = parts_losses(lambda *_: "abc")
TWICE: Final = parts_losses(lambda *_: "abbac")

CASES: Final[Mapping[str, Case]] = {
    "other parameters in every micro-batch": Case(
        Parts, parts_losses(unused_in_some_batches), Plan(THREE_STEPS, micro_batches=3)
    ),
    "other parameters in every micro-batch, deferred": Case(
        Parts, parts_losses(unused_in_some_batches), Plan(THREE_STEPS, micro_batches=3, defers=True)
    ),
    "offload, four micro-batches": Case(plan=Plan(THREE_STEPS, micro_batches=4), sharding=OFFLOAD),
    "offload, clipped each step": Case(plan=Plan((0.1, 0.1), micro_batches=3), sharding=OFFLOAD),
    "offload, three backwards": Case(plan=Plan(backwards=3), sharding=OFFLOAD),
    "offload, deferred": Case(plan=Plan(micro_batches=3, defers=True), sharding=OFFLOAD),
    "bf16, three micro-batches": Case(lambda: Tiny(BF16), plan=Plan(micro_batches=3)),
    "three backwards, clipped": Case(plan=Plan((0.1, 0.1), backwards=3)),
    "bf16, a module twice": Case(lambda: Parts(BF16), TWICE, Plan(micro_batches=2)),
    "a module twice, two backwards, deferred": Case(Parts, TWICE, Plan(micro_batches=2, backwards=2, defers=True)),
    "checkpoints without reentry": Case(lambda: Checkpointed(reentrant=False), plan=Plan(micro_batches=2)),
    "parameters as large as a bucket": Case(Parts, ALL),
    "parameters larger than a bucket, another dtype on the wire": Case(
        lambda: Parts(BF16), ALL, sharding={"bucket_mb": 0.00002, "reduce_dtype": torch.float32}
    ),
    "clipped after deferring": Case(plan=Plan((0.1, 0.1), micro_batches=3, defers=True)),
    "57 parameters": Case(Many, lambda m, s, b, r, _: [m(tiny_batch(s, b, r)).sum()]),
    "unused everywhere in one step": Case(Parts, parts_losses(unused_everywhere), Plan(THREE_STEPS)),
    "unused on some ranks": Case(
        Parts, parts_losses(unused_on_some_ranks), Plan(THREE_STEPS, micro_batches=2), stages=(1, 2)
    ),
    "another order on each rank": Case(Parts, parts_losses(another_order_on_each_rank), stages=(1, 2)),
    "tied": Case(Tied, tokens_losses),
    "groups": Case(Parts, ALL, Plan(THREE_STEPS), groups=two_groups),
    "groups, whole": Case(Parts, ALL, Plan(THREE_STEPS), groups=two_groups, sharding={"layout": "whole"}),
    "step schedule": Case(plan=Plan(THREE_STEPS), groups=two_groups, watch=halve_rate_each_step),
    "cycle schedule": Case(plan=Plan(THREE_STEPS), watch=cycle_rate_and_momentum),
    "tensor rate": Case(plan=Plan(THREE_STEPS), options={"lr": torch.tensor(0.1)}, watch=scale_tensor_rate),
    "foreach": Case(options={"lr": 1e-2, "foreach": True}),
    "amsgrad": Case(options={"lr": 1e-2, "amsgrad": True, "maximize": True}),
    "SGD momentum": Case(
        inner=torch.optim.SGD, options={"lr": 0.1, "momentum": 0.9, "nesterov": True}, plan=Plan(THREE_STEPS)
    ),
    "Adagrad": Case(Parts, parts_losses(unused_everywhere), Plan(THREE_STEPS), torch.optim.Adagrad, {"lr": 0.1}),
    "RMSprop": Case(inner=torch.optim.RMSprop, options={"lr": 0.01, "centered": True, "momentum": 0.9}),
    "Adamax": Case(inner=torch.optim.Adamax, options={"lr": 0.01}),
    "NAdam": Case(inner=torch.optim.NAdam, options={"lr": 0.01}),
    "Rprop": Case(inner=torch.optim.Rprop, options={"lr": 0.01}, plan=Plan(THREE_STEPS)),
}


def train_case(rank: int, world_size: int, *, names: list[str]) -> list[str]:
    """What is not as the oracle has it."""
    wrong = []
    for name in names:
        case = CASES[name]
        wanted = unsharded(
            case.make_model,
            lambda masters, case=case: built(case, masters),
            {},
            case.plan,
            world_size,
            losses=case.losses,
        )
        for stage in case.stages:
            model = case.make_model()
            optimizer = sharded_of(case, model, stage)
            groups = list(optimizer.param_groups)
            found = differences(sharded(model, optimizer, case.plan, rank, losses=case.losses), wanted)
            if not all(one is other for one, other in zip(groups, optimizer.param_groups, strict=True)):
                found.append("param_groups are other objects")
            wrong += [f"{name}, stage {stage}: {each}" for each in found]
            optimizer.close()
    return wrong


def built(case: Case, masters: list[Any]) -> Optimizer:
    """The oracle's optimizer."""
    options = {key: one.clone() if isinstance(one, torch.Tensor) else one for key, one in case.options.items()}
    inner: Callable[..., Optimizer] = case.inner
    optimizer = inner(masters if case.groups is None else case.groups(masters), **options)
    case.watch(optimizer)
    return optimizer


def sharded_of(case: Case, model: nn.Module, stage: Stage) -> ShardedOptimizer:
    """Ours, for the same case."""
    options = {key: one.clone() if isinstance(one, torch.Tensor) else one for key, one in case.options.items()}
    members = [one for one in model.parameters() if one.requires_grad]
    optimizer = ShardedOptimizer(
        model,
        case.inner,
        stage=stage,
        params=None if case.groups is None else case.groups(members),
        **{"bucket_mb": 0.0004, "persistent_elements": 20, **case.sharding, **options},
    )
    case.watch(optimizer)
    return optimizer
