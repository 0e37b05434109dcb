"""The sharded optimizer as an item of a checkpoint: the same names and global shapes as any optimizer's, in slices.

Nothing of world size, stage, bucket or padding is stored. What a plain optimizer keeps under `exp_avg`, this does too;
`master_param` is there beside it where masters are not the parameters themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from shardkeep.format.names import join_name, split_name
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.collector import Collector, TensorNames
from shardkeep.pytorch.flat_slices import FlatPart, FlatSlices
from shardkeep.pytorch.kept_state import KeptState
from shardkeep.pytorch.optimizer_groups import StoredGroups, capture_groups, restore_options
from shardkeep.pytorch.optimizer_restore import OptimizerRestore
from shardkeep.pytorch.optimizer_state import MASTER, STATE, NamedParameter, optimizer_parameters
from shardkeep.pytorch.optimizers import ORDER, capture_kept
from shardkeep.pytorch.pieces import pieces_of
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.state_tensor import lies_like
from shardkeep.pytorch.stored import StoredTensor
from shardkeep.pytorch.tensors import dtype_name, empty_like_stored, torch_dtype
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

    def add_names(self, names: TensorNames) -> None:
        """It names no tensors."""

    def capture(self, into: Collector) -> None:
        """Add this rank's slices of the state. Runs no collective."""
        parameters = list(optimizer_parameters(self._optimizer, self.name, into.names))
        for named in parameters:
            self._capture(into, named)
        capture_groups(into, self.name, self._optimizer.param_groups, parameters)
        capture_kept(into, self.name, self._kept, parameters)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        self._kept = KeptState()
        optimizer, groups = self._optimizer, StoredGroups(plan.stored, self.name)
        if not groups.paths and any(group["params"] for group in optimizer.param_groups):
            plan.missing(join_name((self.name,)))
            return
        plan.used_values.update(groups.paths)
        restore = OptimizerRestore(plan, optimizer, groups)
        names: list[list[str]] = [[] for _ in optimizer.param_groups]
        for named in optimizer_parameters(optimizer, self.name, plan.names):
            found = restore.find(named)
            if found is None:
                plan.missing(join_name((self.name, STATE, *named.parts)))
            else:
                names[named.group].append(found)
                _ParameterRestore(plan, optimizer, named, (self.name, STATE, *split_name(found))).plan()
        restore.plan_absent(self._kept)
        plan.then(lambda: plan.notes.extend(restore_options(optimizer.param_groups, groups, names)))
        plan.then(optimizer.was_restored)
        plan.judge_rest((self.name,))

    def _capture(self, into: Collector, named: NamedParameter) -> None:
        optimizer, parameter = self._optimizer, named.parameter
        path = (self.name, STATE, *named.parts)
        shape = tuple(parameter.shape)
        parts = optimizer.state_parts(parameter)
        if parts and optimizer.has_masters(parameter):
            masters = tuple(FlatPart(part.start, part.master) for part in parts)
            slices = FlatSlices(shape, parts[0].master.dtype, masters)
            into.add_captured(slices.captured((*path, MASTER), SliceKind.OPTIMIZER))
        if not parts:
            return
        first = parts[0]
        for key, tensor in first.tensors.items():
            if tensor.numel() == first.stop - first.start and (tensor.ndim == 1 or tuple(tensor.shape) == shape):
                flat = tuple(FlatPart(part.start, part.tensors[key].view(-1)) for part in parts)
                slices = FlatSlices(shape, tensor.dtype, flat)
                into.add_captured(slices.captured((*path, key), SliceKind.OPTIMIZER))
            else:
                into.add_tensor((*path, key), tensor, SliceKind.OPTIMIZER)
        for key, value in first.values.items():
            if isinstance(value, torch.Tensor):
                into.add_tensor((*path, key), value, SliceKind.OPTIMIZER)
            else:
                into.add_value((*path, key), value)


class _ParameterRestore:
    """The state of one parameter: read straight into new slices, and into the masters there are."""

    def __init__(
        self, plan: RestorePlan, optimizer: ShardedOptimizer, named: NamedParameter, prefix: tuple[str, ...]
    ) -> None:
        self._plan = plan
        self._optimizer = optimizer
        self._parameter = named.parameter
        self._names = [join_name(parts) for parts in named.names]
        self._prefix = prefix
        self._made: dict[str, list[torch.Tensor]] = {}
        self._whole: dict[str, torch.Tensor] = {}
        self._values: dict[str, Any] = {}

    def plan(self) -> None:
        """Add its reads and what follows them."""
        plan, at = self._plan, len(self._prefix)
        stored = {
            path[at]: plan.stored.tensors[name]
            for name in plan.stored.tensors_below(self._prefix)
            if len(path := split_name(name)) == at + 1
        }
        values = {path[at]: path for path in plan.stored.values_below(self._prefix) if len(path) == at + 1}
        plan.used_values.update(values.values())
        self._values = {key: plan.stored.values[path] for key, path in values.items()}
        master = stored.pop(MASTER, None)
        if stored or values or master is not None:
            self._optimizer.make_shard_of(self._parameter)
        self._plan_master(master)
        for key, tensor in stored.items():
            place = self._slices if lies_like(tensor, self._parameter) else self._one
            plan.create(tensor, place(key, tensor))
        plan.then(self._adopt)

    def _plan_master(self, stored: StoredTensor | None) -> None:
        """The masters come from masters; else from weights that were kept in their dtype; else from what was loaded."""
        optimizer, parameter = self._optimizer, self._parameter
        if stored is None and optimizer.has_masters(parameter):
            stored = next((one for name in self._names if (one := self._plan.stored.find(name)) is not None), None)
        parts = self._parts()
        if stored is None:
            return
        self._plan.used.add(stored.name)
        if not parts or tuple(stored.shape) != tuple(parameter.shape):
            return
        if stored.dtype != dtype_name(parts[0].master.dtype):
            self._plan.then(lambda: optimizer.refresh_master_of(parameter))
            return
        shape, apart = tuple(parameter.shape), optimizer.has_masters(parameter)
        read: list[torch.Tensor] = []

        def place() -> Sequence[Any]:
            """Weights that are their own masters are read into as well, so those of the master go through a copy."""
            read.extend(part.master if apart else torch.empty_like(part.master) for part in parts)
            slices = [FlatPart(part.start, values) for part, values in zip(parts, read, strict=True)]
            return FlatSlices(shape, torch_dtype(stored.dtype), tuple(slices)).pieces()

        def write() -> None:
            for part, values in zip(parts, read, strict=True):
                part.master.copy_(values)
            optimizer.parameters_were_written_in_part()

        self._plan.create(stored, place)
        if not apart:
            self._plan.then(write)

    def _slices(self, key: str, stored: StoredTensor) -> Callable[[], Sequence[Any]]:
        def place() -> Sequence[Any]:
            parts = self._parts()
            made = [empty_like_stored(stored.dtype, (part.stop - part.start,), part.master.device) for part in parts]
            self._made[key] = made
            flat = tuple(FlatPart(part.start, values) for part, values in zip(parts, made, strict=True))
            return FlatSlices(tuple(self._parameter.shape), torch_dtype(stored.dtype), flat).pieces()

        return place

    def _one(self, key: str, stored: StoredTensor) -> Callable[[], Sequence[Any]]:
        def place() -> Sequence[Any]:
            if not self._parts():
                return ()
            self._whole[key] = empty_like_stored(stored.dtype, stored.shape)
            return pieces_of(self._whole[key], key)[0]

        return place

    def _parts(self) -> Sequence[StatePart]:
        return self._optimizer.state_parts(self._parameter)

    def _adopt(self) -> None:
        """The state becomes exactly what was saved; a parameter that was never stepped then has none now."""
        parts = [
            StatePart(
                part.start,
                part.stop,
                part.master,
                {key: made[place] for key, made in self._made.items()},
                {**self._values, **{key: value.clone() for key, value in self._whole.items()}},
            )
            for place, part in enumerate(self._parts())
        ]
        has_state = bool(self._made or self._whole or self._values)
        self._optimizer.set_state_of(self._parameter, parts if has_state else None)
