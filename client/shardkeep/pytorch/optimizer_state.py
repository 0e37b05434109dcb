"""The state an optimizer holds for each parameter, named by the parameter's full name.

A 0-d tensor is whole; a DTensor knows its place; a plain shard lies where its parameter's lies (see `state_layout`).
Any other tensor beside a cut parameter describes this rank's shard alone and is kept per rank, beside an uncut one it
is whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from shardkeep.errors import StateError, UnnamedParameter
from shardkeep.format.names import join_name, plain_text
from shardkeep.pytorch.captured import CapturedTensor
from shardkeep.pytorch.collector import TensorNames
from shardkeep.pytorch.pieces import Parts
from shardkeep.pytorch.state_layout import captured_state, has_shards, is_cut, is_plain_array
from shardkeep.pytorch.tensors import dtype_name

logger = logging.getLogger("shardkeep")

STATE: Final = "state"
"""The part between the optimizer's name and the parameter's."""


@dataclass(frozen=True, slots=True, eq=False)
class NamedParameter:
    """A parameter of an optimizer. `names`: every name it has, the stored one first."""

    parameter: torch.Tensor
    group: int
    names: tuple[Parts, ...]

    @property
    def parts(self) -> Parts:
        """The name under which it is stored."""
        return self.names[0]


def optimizer_parameters(optimizer: Optimizer, keyword: str, names: TensorNames) -> Iterator[NamedParameter]:
    """The parameters, group by group; UnnamedParameter for one that no item names."""
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            found = names.of(parameter)
            if not found:
                raise UnnamedParameter(_unnamed(keyword, group_index, index, parameter, names))
            yield NamedParameter(parameter, group_index, tuple(found))


def _unnamed(keyword: str, group: int, index: int, parameter: torch.Tensor, names: TensorNames) -> str:
    what = f"{keyword}: parameter {index} of group {group}, of shape {tuple(parameter.shape)}, is in no module given"
    if not names.by_name:
        return f"{what}; give the module it belongs to as well, so that its state can be named"
    sharded = any(isinstance(tensor, DTensor) for tensor in names.by_name.values())
    if sharded and not isinstance(parameter, DTensor):
        return f"{what}, and the modules are sharded: build the optimizer after fully_shard, not before"
    return f"{what}; build the optimizer from the parameters the module has now, or give the module that holds it"


def check_orphans(optimizer: Optimizer, keyword: str) -> None:
    """StateError if it holds state for a tensor that is in none of its groups any more."""
    known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for key, state in optimizer.state.items():
        if isinstance(key, torch.Tensor) and id(key) not in known and state:
            raise StateError(
                f"{keyword} holds state for a tensor of shape {tuple(key.shape)} that is in none of its groups: the "
                "parameter was replaced after the optimizer was built. Build the optimizer last"
            )


@dataclass(slots=True)
class ParameterState:
    """The state of one parameter, sorted by what becomes of it."""

    tensors: list[CapturedTensor] = field(default_factory=list)
    per_rank: dict[Parts, Any] = field(default_factory=dict)
    others: dict[Parts, Any] = field(default_factory=dict)
    local_keys: set[str] = field(default_factory=set)
    """Keys whose tensors are plain local shards of a DTensor parameter."""


def parameter_state(
    named: NamedParameter, state: Mapping[str, Any], parts: Parts, keys: frozenset[str]
) -> ParameterState:
    """Sort the state of one parameter; `parts` is the name its keys are appended to, `keys` those held as shards."""
    sorted_state = ParameterState()
    parameter = named.parameter
    for key, value in state.items():
        if not isinstance(key, str):
            raise StateError(f"{plain_text(join_name(parts))} has the key {key!r}; only text keys can be stored")
        path = (*parts, key)
        as_shard = key in keys and is_plain_array(value) and has_shards(parameter)
        if is_cut(parameter) and not as_shard and _is_of_one_rank(value):
            sorted_state.per_rank[path] = value
        elif not isinstance(value, torch.Tensor):
            sorted_state.others[path] = value
        else:
            warn_at_limit(path, value)
            sorted_state.tensors.append(captured_state(path, parameter, value, as_shard=as_shard))
            if as_shard and isinstance(parameter, DTensor):
                sorted_state.local_keys.add(key)
    return sorted_state


def _is_of_one_rank(value: Any) -> bool:
    """Whether plain tensors, and no DTensors, are in it: beside a cut parameter they describe its shard here."""
    found = list(_tensors(value))
    return any(is_plain_array(tensor) for tensor in found) and not any(isinstance(tensor, DTensor) for tensor in found)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def warn_at_limit(path: Parts, value: torch.Tensor) -> None:
    """Warn of a counter in a low-precision dtype that adding 1 no longer changes: bias correction stands still."""
    if value.ndim or value.itemsize > 2 or not value.dtype.is_floating_point or isinstance(value, DTensor):
        return
    limit = 2 / torch.finfo(value.dtype).eps
    count = float(value.detach())
    if abs(count) >= limit:
        logger.warning(
            "%s is a %s counter at %g, where adding 1 no longer changes it; create it as float32",
            plain_text(join_name(path)),
            dtype_name(value.dtype),
            count,
        )
