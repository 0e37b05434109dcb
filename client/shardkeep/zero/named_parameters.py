"""Which parameters an optimizer has, under which names and in which groups; and models that cannot be sharded here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.pytorch.flat_slices import is_in_slices
from shardkeep.zero.layout import ParameterSpec

_WRAPPERS: Final = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")
_LOOKS_AT_MATRICES: Final = ("muon", "shampoo", "adafactor", "lamb", "lars", "soap", "galore")

Group = dict[str, Any]


def check_model(model: nn.Module) -> None:
    """ConfigurationError for a model that something else reduces or shards already."""
    for path, module in model.named_modules():
        names = {cls.__name__ for cls in type(module).__mro__}
        found = next((name for name in _WRAPPERS if name in names), None)
        if found is not None:
            raise ConfigurationError(
                f"{path or 'the model'} is wrapped in {found}, which reduces gradients itself: give ShardedOptimizer "
                "the model without it"
            )
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor) or type(parameter.data) is not torch.Tensor:
            raise ConfigurationError(
                f"{name} is a {type(parameter.data).__name__}; ShardedOptimizer takes plain parameters and shards them"
            )
        if not parameter.is_floating_point():
            raise ConfigurationError(f"{name} is {parameter.dtype}; only floating-point parameters can be optimized")
        if is_in_slices(parameter):
            continue  # of another optimizer of this model
        if any(size > 1 and stride == 0 for size, stride in zip(parameter.shape, parameter.stride(), strict=True)):
            raise ConfigurationError(f"{name} is an expanded view; clone it first")


def check_inner(inner: type[Optimizer], layout: str) -> None:
    """ConfigurationError for optimizers that this cannot wrap, or not with this layout."""
    name = inner.__name__
    if name == "LBFGS":
        raise ConfigurationError("LBFGS evaluates its closure many times a step, which a sharded step cannot")
    if name == "SparseAdam":
        raise ConfigurationError("SparseAdam takes sparse gradients, which are not reduced here; use Adam")
    if layout == "flat" and any(word in name.lower() for word in _LOOKS_AT_MATRICES):
        raise ConfigurationError(
            f'{name} looks at whole matrices: give layout="whole", so that each parameter has one owner'
        )


def names_of(model: nn.Module) -> dict[int, list[str]]:
    """Every name of each parameter, by identity; the first registered first."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return names


def groups_of(model: nn.Module, params: Iterable[Any] | None) -> list[Group]:
    """The groups to begin with: all parameters of the model, or what the user gave."""
    if params is None:
        return [{"params": list(model.parameters())}]
    given = list(params)
    if given and isinstance(given[0], Mapping):
        return [_group(one) for one in given]
    return [_group({"params": given})]


def _group(given: Mapping[str, Any]) -> Group:
    members = given["params"]
    members = [members] if isinstance(members, torch.Tensor) else list(members)
    return {**given, "params": [one[1] if isinstance(one, tuple) else one for one in members]}


def named(group: Group, names: Mapping[int, Sequence[str]], where: str) -> list[str]:
    """The names of a group's parameters; ConfigurationError for one that the model does not have."""
    found = []
    for place, parameter in enumerate(group["params"]):
        known = names.get(id(parameter))
        if not known:
            raise ConfigurationError(
                f"parameter {place} of {where}, of shape {tuple(parameter.shape)}, is not one of the model's: give "
                "ShardedOptimizer the model it belongs to"
            )
        if is_in_slices(parameter):
            raise ConfigurationError(f"{known[0]} is in another ShardedOptimizer already; close() that one first")
        found.append(known[0])
    return found


def check_in_model(model: nn.Module, specs: Sequence[ParameterSpec], parameters: Sequence[nn.Parameter]) -> None:
    """StateError for a parameter that the model has no more."""
    there = {id(parameter) for parameter in model.parameters()}
    for spec, parameter in zip(specs, parameters, strict=True):
        if id(parameter) not in there:
            raise StateError(
                f"{spec.name} is not a parameter of the model any more: replace parameters before the optimizer is "
                "built, or write into them"
            )
