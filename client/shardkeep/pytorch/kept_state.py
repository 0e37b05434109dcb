"""Loaded state of parameters that the optimizer does not have now: kept for the next save, given back on return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from shardkeep.format.names import plain_text, split_name
from shardkeep.pytorch import dtensors
from shardkeep.pytorch.captured import Piece
from shardkeep.pytorch.masters import MASTER
from shardkeep.pytorch.pieces import Parts, local_of
from shardkeep.pytorch.state_layout import state_pieces
from shardkeep.pytorch.state_tensor import lies_like, state_device
from shardkeep.pytorch.stored import StoredTensor
from shardkeep.pytorch.tensors import empty_like_stored
from shardkeep.pytorch.trees import ABSENT, Structure, put_together


@dataclass(slots=True, eq=False)
class KeptParameter:
    """Loaded state of a parameter that the optimizer does not have. Tensors by path, on the CPU."""

    parameter: torch.Tensor
    prefix: Parts
    tensors: dict[Parts, torch.Tensor] = field(default_factory=dict)
    values: dict[Parts, Any] = field(default_factory=dict)
    structures: dict[Parts, Structure] = field(default_factory=dict)
    shards: set[Parts] = field(default_factory=set)


@dataclass(slots=True)
class KeptState:
    """All of them."""

    parameters: list[KeptParameter] = field(default_factory=list)

    def install(self, optimizer: Optimizer) -> None:
        """Give state to parameters that have been added to the optimizer since, if they have none yet."""
        for kept in self.take_added(optimizer):
            if not optimizer.state.get(kept.parameter):
                optimizer.state[kept.parameter] = _installed(kept)

    def take_added(self, optimizer: Optimizer) -> list[KeptParameter]:
        """Those of parameters that have been added to the optimizer since; they are kept here no longer."""
        added = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        taken = [kept for kept in self.parameters if id(kept.parameter) in added]
        self.parameters = [kept for kept in self.parameters if id(kept.parameter) not in added]
        return taken


def _installed(kept: KeptParameter) -> dict[str, Any]:
    at = len(kept.prefix)
    leaves: dict[Parts, Any] = dict(kept.values)
    for path, tensor in kept.tensors.items():
        if path[at:] == (MASTER,):
            continue  # it would grow stale: this optimizer steps the parameter itself
        device = state_device(tensor, kept.parameter, {})
        leaves[path] = tensor if isinstance(tensor, DTensor) else tensor.to(device)
    state = {path[at]: leaf for path, leaf in leaves.items() if path[:at] == kept.prefix and len(path) == at + 1}
    for path, structure in kept.structures.items():
        state[path[at]] = put_together(structure, path, lambda leaf, _: leaves.get(leaf, ABSENT))
    return state


def make_kept(entry: KeptParameter, stored: StoredTensor) -> tuple[Piece, ...]:
    """Memory for one of its tensors, where it is read into."""
    parameter, path = entry.parameter, split_name(stored.name)
    as_shard = lies_like(stored, parameter)
    made = empty_like_stored(stored.dtype, local_of(parameter).shape if as_shard else stored.shape)
    if as_shard and isinstance(parameter, DTensor):
        made = dtensors.like(parameter, made.to(local_of(parameter).device))
    elif as_shard:
        entry.shards.add(path)
    entry.tensors[path] = made
    return state_pieces(parameter, made, plain_text(stored.name), as_shard=as_shard)[0]
