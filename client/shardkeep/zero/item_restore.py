"""Restoring the state of one parameter of a sharded optimizer: this rank's slices, read straight into their memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from shardkeep.format.names import split_name
from shardkeep.pytorch.captured import Piece
from shardkeep.pytorch.flat_slices import FlatPart, FlatSlices
from shardkeep.pytorch.kept_state import KeptParameter
from shardkeep.pytorch.masters import MASTER, Stepped, note_rounding
from shardkeep.pytorch.optimizer_state import NamedParameter
from shardkeep.pytorch.pieces import Parts, dtype_of, pieces_of
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.state_tensor import lies_like, state_device
from shardkeep.pytorch.stored import StoredTensor
from shardkeep.pytorch.tensors import dtype_name, empty_like_stored, torch_dtype
from shardkeep.pytorch.tree_restore import TreeRestore
from shardkeep.pytorch.trees import ABSENT, put_together, structure_path, take_apart
from shardkeep.zero.shards import StatePart

if TYPE_CHECKING:
    from shardkeep.zero.optimizer import ShardedOptimizer


class ParameterRestore:
    """The restore of one parameter in the making. `prefix`: the name its keys are appended to."""

    def __init__(self, plan: RestorePlan, optimizer: ShardedOptimizer, named: NamedParameter, prefix: Parts) -> None:
        self._plan = plan
        self._optimizer = optimizer
        self._parameter = named.parameter
        self._named = named
        self._prefix = prefix
        self._owns = optimizer.owns_part_of(named.parameter)
        self._sliced: dict[str, list[torch.Tensor]] = {}
        self._whole: dict[str, torch.Tensor] = {}
        self._values: dict[str, Any] = {}
        self._trees: dict[str, Callable[[], Any]] = {}

    def plan(self) -> None:
        """Add its reads and what follows them."""
        plan, at, prefix = self._plan, len(self._prefix), self._prefix
        below = plan.stored.tensors_below(prefix)
        plan.used.update(below)
        plan.used_values.update(plan.stored.values_below(prefix))
        if below or plan.stored.values_below(prefix):  # on every rank, whatever it owns: a step counts on that
            plan.then(lambda: self._optimizer.make_shard_of(self._parameter))
        paths = {name: path for name in below if len(path := split_name(name)) == at + 1}
        tensors = {path[at]: plan.stored.tensors[name] for name, path in paths.items()}
        stepped = Stepped.of(plan, self._named.names, tensors.pop(MASTER, None))
        self._plan_master(stepped)
        lost = plan.stored.unreadable_below(prefix)
        if lost:
            keys = ", ".join(sorted({path[at] for path in lost}))
            plan.keep_fresh(prefix, f"{keys} described the shard of one rank of another world size")
        elif self._owns:
            self._plan_state(tensors, stepped)
        plan.then(self._adopt)

    def _plan_state(self, tensors: dict[str, StoredTensor], stepped: Stepped) -> None:
        plan, at, prefix = self._plan, len(self._prefix), self._prefix
        for key, stored in tensors.items():
            dtype = stepped.state_dtype(stored, self._parameter, self._stepped_dtype())
            note_rounding(plan, stored, dtype)
            plan.create(stored, self._place(key, stored, dtype))
        for path in plan.stored.values_below(prefix):
            if len(path) == at + 1:
                self._values[path[at]] = plan.stored.values[path]
        for nested in plan.stored.values_below(structure_path(prefix)):
            path = nested[1:]
            build = TreeRestore(plan, path, take_apart(None, path), in_place=False).plan()
            if build is not None:
                self._trees[path[at]] = build

    def _plan_master(self, stepped: Stepped) -> None:
        """Masters come from masters; else from weights that were kept in their dtype; else from what was loaded."""
        plan, optimizer, parameter = self._plan, self._optimizer, self._parameter
        stepped.plan_weights(plan, dtype_of(parameter))
        source = stepped.master
        if source is None and stepped.weights is not None and stepped.weights.dtype == self._stepped_dtype():
            source = stepped.weights
        is_read = source is not None and tuple(source.shape) == tuple(parameter.shape)
        if not optimizer.has_masters(parameter) or source is None or not is_read:
            plan.then(lambda: optimizer.refresh_master_of(parameter))
        elif self._owns and (stepped.master is not None or optimizer.state_parts(parameter)):
            note_rounding(plan, source, self._stepped_dtype())
            plan.create(source, self._master_pieces)

    def _master_pieces(self) -> Sequence[Piece]:
        parts = self._parts()
        slices = tuple(FlatPart(part.start, part.master) for part in parts)
        return FlatSlices(tuple(self._parameter.shape), parts[0].master.dtype, slices).pieces()

    def _place(self, key: str, stored: StoredTensor, dtype: str) -> Callable[[], Sequence[Piece]]:
        def slices() -> Sequence[Piece]:
            parts = self._parts()
            counts, kind = [part.stop - part.start for part in parts], torch_dtype(dtype)
            made = [self._optimizer.empty_state_of(self._parameter, one, kind) for one in counts]
            self._sliced[key] = made
            flat = tuple(FlatPart(part.start, values) for part, values in zip(parts, made, strict=True))
            return FlatSlices(tuple(self._parameter.shape), made[0].dtype, flat).pieces()

        def whole() -> Sequence[Piece]:
            self._whole[key] = empty_like_stored(dtype, stored.shape)
            return pieces_of(self._whole[key], key)[0]

        return slices if lies_like(stored, self._parameter) else whole

    def _parts(self) -> Sequence[StatePart]:
        """A parameter that is frozen here has memory for its state only once there is some."""
        self._optimizer.make_shard_of(self._parameter)
        return self._optimizer.state_parts(self._parameter)

    def _adopt(self) -> None:
        """The state becomes exactly what was saved; a parameter that was never stepped then has none now."""
        if not (self._sliced or self._whole or self._values or self._trees):
            self._optimizer.set_state_of(self._parameter, None)
            return
        values = {**self._values, **self._whole, **{key: build() for key, build in self._trees.items()}}
        sliced = self._sliced
        set_state(self._optimizer, self._parameter, self._parts(), lambda key, at: sliced[key][at], sliced, values)

    def _stepped_dtype(self) -> str:
        return dtype_name(self._optimizer.stepped_dtype(self._parameter))


def set_state(
    optimizer: ShardedOptimizer,
    parameter: torch.Tensor,
    parts: Sequence[StatePart],
    slice_of: Callable[[str, int], torch.Tensor],
    sliced: Sequence[str] | dict[str, Any],
    values: dict[str, Any],
) -> None:
    """Gives each part its slice of each of the keys `sliced`, and a copy of `values` of its own."""
    group = optimizer.group_of(parameter)
    made = [
        StatePart(
            part.start,
            part.stop,
            part.master,
            {key: slice_of(key, at) for key in sliced},
            {key: _own(value, part.master, group) for key, value in values.items()},
        )
        for at, part in enumerate(parts)
    ]
    optimizer.set_state_of(parameter, made)


def _own(value: Any, master: torch.Tensor, group: dict[str, Any]) -> Any:
    """A copy, on the device where the optimizer looks for it."""
    if isinstance(value, torch.Tensor):
        device = state_device(value, master, group)
        return value.to(device) if value.device != device else value.clone()
    return copy.deepcopy(value)


def give_back(optimizer: ShardedOptimizer, kept: KeptParameter) -> None:
    """Kept state becomes that of a parameter which has been added since, unless it was stepped already."""
    parameter, at = kept.parameter, len(kept.prefix)
    leaves: dict[Parts, Any] = {**kept.values, **kept.tensors}
    state = {path[at]: leaf for path, leaf in leaves.items() if len(path) == at + 1}
    for path, structure in kept.structures.items():
        state[path[at]] = put_together(structure, path, lambda leaf, _: leaves.get(leaf, ABSENT))
    if not state:
        return
    optimizer.make_shard_of(parameter)
    parts = optimizer.state_parts(parameter)
    master = state.pop(MASTER, None)
    if not parts or parts[0].tensors or parts[0].values:
        return
    if master is not None and optimizer.has_masters(parameter):
        _take_master(parameter, parts, master)
    if not state:
        return
    shape = tuple(parameter.shape)
    arrays = {
        key: value.view(-1)
        for key, value in state.items()
        if isinstance(value, torch.Tensor) and tuple(value.shape) == shape and key != "step"
    }
    values = {key: value for key, value in state.items() if key not in arrays}

    def slice_of(key: str, at: int) -> torch.Tensor:
        part = parts[at]
        return arrays[key][part.start : part.stop].to(part.master.device, copy=True)

    set_state(optimizer, parameter, parts, slice_of, arrays, values)


def _take_master(parameter: torch.Tensor, parts: Sequence[StatePart], master: torch.Tensor) -> None:
    """Only where the parameter is still what the master rounds to."""
    for part in parts:
        saved = master.view(-1)[part.start : part.stop].to(part.master)
        is_same = saved.to(parameter.dtype) == part.master.to(parameter.dtype)
        part.master.copy_(torch.where(is_same, saved, part.master))
