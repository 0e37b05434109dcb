"""layout="whole": optimizers that look at matrices get them whole, and do what they do unsharded, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from shardkeep.errors import ConfigurationError
from shardkeep.zero import ShardedOptimizer
from tests.distributed.launcher import RankPools
from tests.distributed.zero import unit_models
from tests.distributed.zero.oracle import Plan, differences, sharded, unsharded
from tests.distributed.zero.test_units import held_units
from tests.distributed.zero.unit_models import WIDTH


class Lamb(Optimizer):
    """Steps by a share of each parameter's norm (LAMB, arXiv 1904.00962)."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-2, decay: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step."""
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["mean"].lerp_(parameter.grad, 0.1)
                state["square"].lerp_(parameter.grad.square(), 0.01)
                update = state["mean"] / (state["square"].sqrt() + 1e-6) + group["decay"] * parameter
                norm = parameter.norm()
                share = norm / update.norm() if norm > 0 else torch.ones(())
                parameter.sub_(group["lr"] * share * update)


class Matrices(nn.Module):
    """Matrices alone, of which one rank of three has none."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(WIDTH, 9, bias=False)
        self.last = nn.Linear(9, 3, bias=False)
        self.to(dtype)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(torch.tanh(self.first(x.to(self.first.weight.dtype))))


def norms_and_all(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Matrices, vectors and a 0-d scale."""
    torch.manual_seed(3)
    return Everything().to(dtype)


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 9)
        self.norm = nn.LayerNorm(9)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.last = nn.Linear(9, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x.to(self.scale.dtype))
        return self.last(torch.tanh(self.norm(x)) * self.scale)


CASES: list[tuple[Callable[..., Optimizer], dict[str, Any], Callable[..., nn.Module]]] = [
    (torch.optim.Muon, {"lr": 1e-2, "weight_decay": 0.1}, Matrices),
    (torch.optim.Adafactor, {"lr": 1e-2, "weight_decay": 0.1}, norms_and_all),
    (Lamb, {}, norms_and_all),
    (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}, norms_and_all),
]


def train_whole(rank: int, world_size: int) -> list[str]:
    told = []
    for (inner, options, make), dtype in [(case, dtype) for case in CASES for dtype in (torch.float32, torch.bfloat16)]:
        make_model = partial(make, dtype)
        wanted = unsharded(make_model, inner, options, Plan(), world_size, losses=unit_models.losses)
        for stage in (1, 2, 3):
            # a bucket for each parameter, or one for all
            for bucket_mb in (0.0001, 25) if dtype == torch.float32 else (25,):
                model = make_model()
                given: dict[str, Any] = {"stage": stage, "bucket_mb": bucket_mb, "persistent_elements": 0, **options}
                optimizer = ShardedOptimizer(model, inner, layout="whole", **given)  # type: ignore[arg-type]
                found = differences(sharded(model, optimizer, Plan(), rank, losses=unit_models.losses), wanted)
                if stage == 3 and held_units(optimizer):
                    found.append("units are still there")
                if found:
                    told.append(f"{inner}, {dtype}, stage {stage}, {bucket_mb} MiB: {'; '.join(found)}")
    return told


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_fault_61_and_62_matrix_optimizers_step_whole_reduced_matrices(rank_pools: RankPools, world_size: int) -> None:
    """At every stage, also on ranks that own nothing of a bucket, or nothing at all (fault 62)."""
    assert rank_pools.of(world_size).run(train_whole) == [[]] * world_size


class Projections(nn.Module):
    """Matrices and vectors, for an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 9), nn.LayerNorm(9), nn.Linear(9, 3))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


def train_with_two(rank: int, world_size: int) -> None:
    """Muon for the matrices, AdamW for the rest, as is usual."""
    wanted = Projections()
    references = _two(wanted, torch.optim.Muon, torch.optim.AdamW)
    gradients: dict[str, torch.Tensor] = {}
    for step in range(2):
        for other in range(world_size):
            wanted.zero_grad()
            wanted(unit_models.batch(step, 0, other)).square().mean().backward()
            for name, one in wanted.named_parameters():
                assert one.grad is not None
                gradients[name] = gradients[name] + one.grad if other else one.grad.clone()
        for name, one in wanted.named_parameters():
            one.grad = gradients[name] / world_size
        for reference in references:
            reference.step()
    for stage in (1, 2, 3):
        model = Projections()
        given: dict[str, Any] = {"stage": stage, "persistent_elements": 0}
        optimizers = _two(
            model,
            lambda params, given=given, model=model, **options: ShardedOptimizer(
                model, torch.optim.Muon, params=params, layout="whole", **given, **options
            ),
            lambda params, given=given, model=model, **options: ShardedOptimizer(
                model, torch.optim.AdamW, params=params, **given, **options
            ),
        )
        for step in range(2):
            for optimizer in optimizers:
                optimizer.zero_grad()
            model(unit_models.batch(step, 0, rank)).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
        state = model.state_dict()
        for name, one in wanted.named_parameters():
            assert torch.equal(state[name], one), f"stage {stage}: {name}"


def _two(model: nn.Module, muon: Any, adam: Any) -> list[Any]:
    matrices = [one for one in model.parameters() if one.ndim == 2]
    rest = [one for one in model.parameters() if one.ndim != 2]
    return [muon(matrices, lr=1e-2), adam(rest, lr=1e-3)]


def test_two_optimizers_share_a_model(rank_pools: RankPools) -> None:
    rank_pools.of(2).run(train_with_two)


class Centered(torch.optim.SGD):
    """Looks at a whole matrix, but its name does not say so."""

    def step(self, closure: Any = None) -> Any:
        """Keeps a mean of each row."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.state[parameter]["rows"] = parameter.detach().flatten(0)[:1].clone()
        return super().step(closure)


def refuse_flat(rank: int, _world_size: int) -> None:
    for inner in (torch.optim.Muon, torch.optim.Adafactor, Lamb):
        with pytest.raises(ConfigurationError, match='layout="whole"'):
            ShardedOptimizer(Matrices(), inner)
    model = Matrices()
    optimizer = ShardedOptimizer(model, Centered, lr=0.1)
    model(unit_models.batch(0, 0, rank)).square().mean().backward()
    with pytest.raises(ConfigurationError, match='layout="whole"'):
        optimizer.step()


def test_fault_63_matrix_optimizers_on_slices_of_matrices_are_an_error(rank_pools: RankPools) -> None:
    """By name at construction; else by the state they keep, at the first step."""
    rank_pools.of(2).run(refuse_flat)
