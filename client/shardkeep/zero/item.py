"""The sharded optimizer as an item of a checkpoint: the same names and global shapes as any optimizer's, in slices.

Nothing of world size, stage, bucket or padding is stored. What a plain optimizer keeps under `exp_avg`, this does too;
`master_param` is there beside it where masters are not the parameters themselves. How it is put back is in
`item_restore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from shardkeep.format.names import join_name, split_name
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.collector import Collector, TensorNames
from shardkeep.pytorch.flat_slices import FlatPart, FlatSlices
from shardkeep.pytorch.kept_state import KeptState
from shardkeep.pytorch.masters import MASTER
from shardkeep.pytorch.optimizer_groups import StoredGroups, capture_groups, restore_options
from shardkeep.pytorch.optimizer_restore import OptimizerRestore
from shardkeep.pytorch.optimizer_state import STATE, NamedParameter, optimizer_parameters
from shardkeep.pytorch.optimizers import ORDER, capture_kept, watch_steps
from shardkeep.pytorch.pieces import Parts
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.trees import holds_tensors
from shardkeep.zero.item_restore import ParameterRestore, give_back
from shardkeep.zero.shards import StatePart

if TYPE_CHECKING:
    from shardkeep.zero.optimizer import ShardedOptimizer


class ShardedItem:
    """A ShardedOptimizer under its name."""

    order = ORDER

    def __init__(self, name: str, optimizer: ShardedOptimizer) -> None:
        self.name = name
        self._optimizer = optimizer
        self._kept = KeptState()
        self._watch = watch_steps(self, optimizer)

    def add_names(self, names: TensorNames) -> None:
        """It names no tensors."""

    def capture(self, into: Collector) -> None:
        """Add this rank's slices of the state, as views of live memory. Runs no collective."""
        self._optimizer.check_stepped()
        self.before_step()
        parameters = list(optimizer_parameters(self._optimizer, self.name, into.names))
        for named in parameters:
            parts = self._optimizer.state_parts(named.parameter)
            if parts:
                self._capture(into, named, parts)
        capture_groups(into, self.name, self._optimizer.param_groups, parameters)
        capture_kept(into, self.name, self._kept, parameters)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        self._kept = KeptState()
        optimizer, groups = self._optimizer, StoredGroups(plan.stored, self.name)
        if not groups.paths and any(group["params"] for group in optimizer.param_groups):
            plan.missing(join_name((self.name,)))
            return
        if optimizer.is_gathered:
            plan.impossible(f"{self.name} has parameters gathered: resume outside of gathered() and of a forward")
        plan.used_values.update(groups.paths)
        restore = OptimizerRestore(plan, optimizer, groups)
        names: list[list[str]] = [[] for _ in optimizer.param_groups]
        for named in optimizer_parameters(optimizer, self.name, plan.names):
            found = restore.find(named)
            if found is None:
                plan.missing(join_name((self.name, STATE, *named.parts)))
            else:
                names[named.group].append(found)
                ParameterRestore(plan, optimizer, named, (self.name, STATE, *split_name(found))).plan()
        restore.plan_absent(self._kept)
        plan.then(lambda: plan.notes.extend(restore_options(optimizer.param_groups, groups, names)))
        plan.then(optimizer.was_restored)
        plan.judge_rest((self.name,))

    def before_step(self) -> None:
        """State that was loaded for parameters the optimizer did not have goes to those that it has got since."""
        for kept in self._kept.take_added(self._optimizer):
            give_back(self._optimizer, kept)

    def _capture(self, into: Collector, named: NamedParameter, parts: Sequence[StatePart]) -> None:
        path = (self.name, STATE, *named.parts)
        shape = tuple(named.parameter.shape)
        if self._optimizer.has_masters(named.parameter):
            masters = tuple(FlatPart(part.start, part.master) for part in parts)
            into.add_captured(
                FlatSlices(shape, parts[0].master.dtype, masters).captured((*path, MASTER), SliceKind.OPTIMIZER)
            )
        for key, tensor in parts[0].tensors.items():
            if self._lies_like(tensor, shape):
                flat = tuple(FlatPart(part.start, part.tensors[key].view(-1)) for part in parts)
                into.add_captured(FlatSlices(shape, tensor.dtype, flat).captured((*path, key), SliceKind.OPTIMIZER))
            else:
                into.add_tensor((*path, key), tensor, SliceKind.OPTIMIZER)
        for key, value in parts[0].values.items():
            _capture_value(into, (*path, key), value)

    def _lies_like(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> bool:
        """With a flat layout all arrays are slices; an owner of whole parameters may keep others, factors say."""
        return self._optimizer.layout_kind == "flat" or tuple(tensor.shape) == shape


def _capture_value(into: Collector, path: Parts, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        into.add_tensor(path, value, SliceKind.OPTIMIZER)
    elif holds_tensors(value):
        into.add_tree(value, path, SliceKind.OPTIMIZER)
    else:
        into.add_value(path, value)
