"""What a sharded optimizer must come to, from an optimizer that is not sharded.

Each rank's gradients are computed alone. For every round (a backward, or several that `no_sync` put together) they are
summed in the order of ranks in fp32 and divided by the number of ranks once; rounds add up in fp32. The unsharded torch
optimizer steps fp32 masters with that, and parameters are rounded from the masters.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from shardkeep.zero import ShardedOptimizer

Stage = Literal[1, 2, 3]
STAGES: Final[tuple[Stage, ...]] = (1, 2, 3)
Tensors = dict[str, torch.Tensor]
States = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How training goes. `defers`: all micro-batches of a step but the last are under no_sync.

    `max_norms`: of each step; None: it does not clip.
    """

    max_norms: tuple[float | None, ...] = (None, 0.3)
    micro_batches: int = 1
    defers: bool = False
    backwards: int = 1

    @property
    def rounds(self) -> list[list[tuple[int, int]]]:
        """(micro-batch, backward) of what is reduced together, for each reduction of a step."""
        every = [[(batch, backward)] for batch in range(self.micro_batches) for backward in range(self.backwards)]
        if not self.defers:
            return every
        deferred = len(every) - self.backwards
        return [[one for these in every[: deferred + 1] for one in these], *every[deferred + 1 :]]


@dataclass(slots=True)
class Outcome:
    """What training came to, by name. `norms`: of the gradients, as clipping said.

    Parameters are whole. Gradients and state are too for the oracle; of a sharded optimizer they are what this rank
    owns, flat, from the elements `starts` on.
    """

    parameters: Tensors = field(default_factory=dict)
    state: States = field(default_factory=dict)
    gradients: list[Tensors] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)


Losses = Callable[[nn.Module, int, int, int, int], list[torch.Tensor]]
"""The losses of (model, step, micro-batch, rank, how many) of one forward, each to be run backward by itself."""


class Tiny(nn.Module):
    """7 -> 3, of sizes that no number of ranks divides, and with a 0-d scale."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(7, 13)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.last = nn.Linear(13, 3)
        self.to(dtype)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.last(torch.tanh(self.first(batch)) * self.scale)
        return output


def tiny_batch(step: int, micro_batch: int, rank: int, *, rows: int = 4) -> torch.Tensor:
    """Inputs of `Tiny`, others for every step, micro-batch and rank."""
    generator = torch.Generator().manual_seed(1_000_003 * step + 1009 * micro_batch + rank)
    return torch.randn(rows, 7, generator=generator)


def tiny_losses(model: nn.Module, step: int, micro_batch: int, rank: int, count: int) -> list[torch.Tensor]:
    """Losses that differ, of one forward."""
    dtype = next(model.parameters()).dtype
    output = model(tiny_batch(step, micro_batch, rank).to(dtype)).float()
    return [output.square().mean(), output.sin().sum() * 0.1, output.abs().mean()][:count]


def unsharded(
    make_model: Callable[[], nn.Module],
    inner: Callable[..., Optimizer],
    options: Mapping[str, Any],
    plan: Plan,
    world_size: int,
    *,
    losses: Losses = tiny_losses,
) -> Outcome:
    """Trains one model with every rank's gradients."""
    model = make_model()
    named = {name: one for name, one in model.named_parameters() if one.requires_grad}
    masters = {name: one.detach().float().clone().requires_grad_() for name, one in named.items()}
    optimizer = inner(list(masters.values()), **options)
    outcome = Outcome()
    for step, max_norm in enumerate(plan.max_norms):
        total = _reduced(model, named, plan, world_size, step, losses)
        if max_norm is not None:
            outcome.norms.append(clip(total.values(), max_norm))
        for name, master in masters.items():
            master.grad = total.get(name)
        outcome.gradients.append({name: gradient.clone() for name, gradient in total.items()})
        optimizer.step()
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(masters[name])
    outcome.parameters = {name: one.detach().clone() for name, one in model.named_parameters()}
    outcome.state = {
        name: {**optimizer.state[master], "master": master.detach()}
        for name, master in masters.items()
        if master in optimizer.state
    }
    return outcome


def sharded(
    model: nn.Module, optimizer: ShardedOptimizer, plan: Plan, rank: int, *, losses: Losses = tiny_losses
) -> Outcome:
    """Trains this rank's part."""
    outcome = Outcome()
    for step, max_norm in enumerate(plan.max_norms):
        optimizer.zero_grad()
        for micro_batch in range(plan.micro_batches):
            is_deferred = plan.defers and micro_batch < plan.micro_batches - 1
            with optimizer.no_sync() if is_deferred else contextlib.nullcontext():
                found = losses(model, step, micro_batch, rank, plan.backwards)
                for loss in found:
                    loss.backward(retain_graph=loss is not found[-1])
        if max_norm is not None:
            outcome.norms.append(float(optimizer.clip_grad_norm_(max_norm)))
        outcome.gradients.append(own_gradients(optimizer, outcome.starts))
        optimizer.step()
    outcome.parameters = whole_parameters(model, optimizer)
    outcome.state = own_state(optimizer, outcome.starts)
    return outcome


def clip(gradients: Iterable[torch.Tensor], max_norm: float) -> float:
    """As ShardedOptimizer.clip_grad_norm_: squares are added in fp64, the rest is fp32."""
    found = list(gradients)
    squares = [float(torch.linalg.vector_norm(one, dtype=torch.float64)) ** 2 for one in found]
    norm = torch.tensor(math.sqrt(math.fsum(squares)), dtype=torch.float32)
    factor = float((max_norm / (norm + 1e-6)).clamp(max=1.0))
    for one in found:
        one.mul_(factor)
    return float(norm)


def whole_parameters(model: nn.Module, optimizer: ShardedOptimizer) -> Tensors:
    """Copies of all parameters, whatever the stage. Collective."""
    with optimizer.gathered(model):
        return {name: one.detach().clone() for name, one in model.named_parameters()}


def own_gradients(optimizer: ShardedOptimizer, starts: dict[str, int]) -> Tensors:
    """What this rank owns of the reduced gradients; where it begins is put into `starts`."""
    found = {}
    for name, _ in named_parameters_of(optimizer):
        part = optimizer.grad_slice(name)
        if part is not None:
            starts[name], found[name] = part
    return found


def own_state(optimizer: ShardedOptimizer, starts: dict[str, int]) -> States:
    """What this rank owns of the state and masters of parameters that were stepped."""
    found: States = {}
    for name, parameter in named_parameters_of(optimizer):
        parts = optimizer.state_parts(parameter)
        if not parts or not (parts[0].tensors or parts[0].values):
            continue
        starts[name] = parts[0].start
        found[name] = {key: torch.cat([part.tensors[key].view(-1) for part in parts]) for key in parts[0].tensors}
        found[name] |= {**parts[0].values, "master": torch.cat([part.master.view(-1) for part in parts])}
    return found


def whole_gradients(optimizer: ShardedOptimizer) -> Tensors:
    """The reduced gradients, put together of all ranks. Collective."""
    own = {name: optimizer.grad_slice(name) for name, _ in named_parameters_of(optimizer)}
    shapes = {name: one.shape for name, one in named_parameters_of(optimizer)}
    ranks = _of_all_ranks(own)
    found = {}
    for name, shape in shapes.items():
        parts = sorted((part for rank in ranks if (part := rank[name]) is not None), key=lambda part: part[0])
        if parts:
            found[name] = torch.cat([values for _, values in parts]).view(shape)
    return found


def whole_state(optimizer: ShardedOptimizer) -> States:
    """The state of every parameter that was stepped, put together of all ranks, and its `master`. Collective."""
    own = {name: _parts(optimizer, one) for name, one in named_parameters_of(optimizer)}
    shapes = {name: one.shape for name, one in named_parameters_of(optimizer)}
    ranks = _of_all_ranks(own)
    found: States = {}
    for name, shape in shapes.items():
        parts = sorted((part for rank in ranks for part in rank[name]), key=lambda part: part[0])
        if not parts or not (parts[0][2] or parts[0][3]):
            continue
        _, master, tensors, values = parts[0]
        assert all(str(part[3]) == str(values) for part in parts), f"ranks disagree on {name}: {parts}"
        found[name] = {key: torch.cat([part[2][key].view(-1) for part in parts]).view(shape) for key in tensors}
        found[name] |= {**values, "master": torch.cat([part[1] for part in parts]).view(shape)}
        assert master.dtype == found[name]["master"].dtype
    return found


def named_parameters_of(optimizer: ShardedOptimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """All parameters, by the names the optimizer has them under."""
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def differences(found: Outcome, wanted: Outcome) -> list[str]:
    """What a rank has that is not the oracle's bit for bit, in words; empty when all is."""
    told = _compare("parameter", found.parameters, wanted.parameters)
    for name, state in found.state.items():
        told += _compare(f"state of {name}:", state, _cut(wanted.state.get(name, {}), state, found.starts[name]))
    for step, gradients in enumerate(found.gradients):
        for name, gradient in gradients.items():
            whole = wanted.gradients[step]
            if name not in whole and not gradient.any():
                continue  # no rank used it: what was reduced is zero
            own = {name: gradient}
            told += _compare(f"step {step}: gradient", own, _cut({name: whole.get(name)}, own, found.starts[name]))
    if found.norms != wanted.norms:
        told.append(f"norms {found.norms} for {wanted.norms}")
    return told


def _cut(whole: Mapping[str, Any], own: Mapping[str, Any], start: int) -> dict[str, Any]:
    """Of whole tensors what a rank should have of them; counters are the same on all."""
    return {key: _part(value, own.get(key), start) for key, value in whole.items()}


def _part(whole: Any, own: Any, start: int) -> Any:
    is_divided = isinstance(whole, torch.Tensor) and isinstance(own, torch.Tensor) and own.ndim
    return whole.reshape(-1)[start : start + own.numel()] if is_divided else whole


def _compare(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    told = [f"{what} {name} is on one side alone" for name in found.keys() ^ wanted.keys()]
    for name in found.keys() & wanted.keys():
        if wanted[name] is None:
            told.append(f"{what} {name} should not be")
            continue
        here, there = torch.as_tensor(found[name]), torch.as_tensor(wanted[name])
        if here.shape != there.shape or here.dtype != there.dtype:
            told.append(f"{what} {name}: {here.dtype} {tuple(here.shape)} for {there.dtype} {tuple(there.shape)}")
        elif not torch.equal(here, there):
            told.append(f"{what} {name}: off by {float((here.double() - there.double()).abs().max()):.3g}")
    return told


def _reduced(
    model: nn.Module, named: Mapping[str, nn.Parameter], plan: Plan, world_size: int, step: int, losses: Losses
) -> Tensors:
    """The gradients of a step, reduced."""
    alone = [_alone(model, named, plan, step, rank, losses) for rank in range(world_size)]
    total: Tensors = {}
    for number in range(len(plan.rounds)):
        for name in named:
            parts = [of_rank[number].get(name) for of_rank in alone]
            if all(part is None for part in parts):
                continue
            summed = torch.zeros_like(named[name], dtype=torch.float32)
            for part in parts:
                if part is not None:
                    summed += part
            summed /= world_size
            total[name] = summed if name not in total else total[name].add_(summed)
    return total


def _alone(
    model: nn.Module, named: Mapping[str, nn.Parameter], plan: Plan, step: int, rank: int, losses: Losses
) -> list[Tensors]:
    """One rank's gradients of each round, in the parameters' dtype."""
    each: dict[tuple[int, int], Tensors] = {}
    for micro_batch in range(plan.micro_batches):
        found = losses(model, step, micro_batch, rank, plan.backwards)
        for number, loss in enumerate(found):
            for one in named.values():
                one.grad = None
            loss.backward(retain_graph=loss is not found[-1])
            each[micro_batch, number] = {name: one.grad for name, one in named.items() if one.grad is not None}
    rounds: list[Tensors] = []
    for members in plan.rounds:
        local: Tensors = {}
        for member in members:
            for name, gradient in each[member].items():
                local[name] = gradient if name not in local else local[name].add_(gradient)
        rounds.append(local)
    return rounds


def _parts(optimizer: ShardedOptimizer, parameter: nn.Parameter) -> Sequence[tuple[int, torch.Tensor, Tensors, Any]]:
    return [
        (part.start, part.master.clone(), {key: one.clone() for key, one in part.tensors.items()}, dict(part.values))
        for part in optimizer.state_parts(parameter)
    ]


def _of_all_ranks(own: Any) -> list[Any]:
    """In order of rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [own]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found
