"""What the user names, one class for each kind of thing: how its state is captured and how it is written back."""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch import nn

from shardkeep.format.names import join_name
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.collector import Collector, TensorNames
from shardkeep.pytorch.marks import PerRank
from shardkeep.pytorch.module_restore import plan_module
from shardkeep.pytorch.modules import module_state, named_parameters
from shardkeep.pytorch.pieces import TensorLike
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.tree_restore import TreeRestore
from shardkeep.pytorch.trees import PER_RANK_LEAF, structure_path, take_apart, update_in_place

MODULES_FIRST: Final = 0
OPTIMIZERS_NEXT: Final = 1
OTHERS_LAST: Final = 2


class Item(Protocol):
    """One top-level name. Nothing of its state is kept between calls: live objects are asked anew each time."""

    name: str
    order: int
    """When it is restored: optimizers need their parameters' state in place, schedulers their optimizers'."""

    def add_names(self, names: TensorNames) -> None:
        """Register the tensors it names, for optimizers whose parameters they are."""
        ...

    def capture(self, into: Collector) -> None:
        """Add its tensors and values; StateError if they cannot be stored."""
        ...

    def plan(self, plan: RestorePlan) -> None:
        """Add its checks, reads and actions; writes nothing."""
        ...


@runtime_checkable
class MakesItem(Protocol):
    """Something that knows how its state is kept, beyond state_dict()."""

    def shardkeep_item(self, name: str) -> Item:
        """The item under a top-level name."""
        ...


class ModuleItem:
    """A module: parameters, persistent buffers, extra state."""

    order = MODULES_FIRST

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self._module = module

    def add_names(self, names: TensorNames) -> None:
        """Register the tensors it names."""
        module_state(self._module)  # its hook reshards FSDP2: only then are the registered parameters the shards
        for parts, parameter in named_parameters(self._module):
            names.add((self.name, *parts), parameter)

    def capture(self, into: Collector) -> None:
        """Add its state to a capture."""
        state = module_state(self._module)
        for entry in state.tensors:
            into.add_module_tensor((self.name, *entry.parts), entry.tensor, entry.kind)
        for extra in state.extras:
            into.add_tree(extra.value, (self.name, *extra.parts), SliceKind.BUFFER)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        plan_module(plan, self.name, self._module)


class TensorItem:
    """A lone tensor, loaded in place."""

    order = OTHERS_LAST

    def __init__(self, name: str, tensor: TensorLike) -> None:
        self.name = name
        self._tensor = tensor

    def add_names(self, names: TensorNames) -> None:
        """Register the tensors it names."""
        if isinstance(self._tensor, torch.Tensor):
            names.add((self.name,), self._tensor)

    def capture(self, into: Collector) -> None:
        """Add its state to a capture."""
        into.add_tensor((self.name,), self._tensor, SliceKind.TENSOR)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        name = join_name((self.name,))
        stored = plan.stored.find(name)
        if stored is None:
            plan.missing(name)
        else:
            plan.write(stored, self._tensor, name)
        plan.judge_rest((self.name,))


class ContainerItem:
    """A dict or list, updated in place: it becomes what was saved; its tensors and nested containers stay the same."""

    order = OTHERS_LAST

    def __init__(self, name: str, container: dict[Any, Any] | list[Any]) -> None:
        self.name = name
        self._container = container

    def add_names(self, names: TensorNames) -> None:
        """Register the tensors it names."""
        for path, tensor in take_apart(self._container, (self.name,)).tensors.items():
            if isinstance(tensor, torch.Tensor):
                names.add(path, tensor)

    def capture(self, into: Collector) -> None:
        """Add its state to a capture."""
        into.add_tree(self._container, (self.name,), SliceKind.TENSOR)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        parts = (self.name,)
        build = TreeRestore(plan, parts, take_apart(self._container, parts), in_place=True).plan()
        if build is None:
            return
        plan.then(lambda: self._update(build()))

    def _update(self, new: Any) -> None:
        update_in_place(self._container, new)


class StatefulItem:
    """Anything with state_dict() and load_state_dict(): the dict is taken apart and handed back as it was."""

    def __init__(self, name: str, stateful: Any, kind: SliceKind = SliceKind.TENSOR) -> None:
        self.name = name
        self.order = OPTIMIZERS_NEXT if kind is SliceKind.OPTIMIZER else OTHERS_LAST
        self._stateful = stateful
        self._kind = kind

    def add_names(self, names: TensorNames) -> None:
        """Register the tensors it names."""

    def capture(self, into: Collector) -> None:
        """Add its state to a capture."""
        into.add_tree(self._stateful.state_dict(), (self.name,), self._kind)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        parts = (self.name,)
        build = TreeRestore(plan, parts, take_apart(self._stateful.state_dict(), parts), in_place=False).plan()
        if build is not None:
            plan.then(lambda: self._stateful.load_state_dict(build()))


class PerRankItem:
    """State that each rank keeps for itself: a `PerRank`, or a loader that counts for itself."""

    order = OTHERS_LAST

    def __init__(self, name: str, holder: Any) -> None:
        self.name = name
        self._holder = holder

    def add_names(self, names: TensorNames) -> None:
        """Register the tensors it names."""

    def capture(self, into: Collector) -> None:
        """Add its state to a capture."""
        into.add_value((self.name,), self._state(), per_rank=True)
        into.add_value(structure_path((self.name,)), PER_RANK_LEAF)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        path = (self.name,)
        plan.used_values.add(path)
        if path in plan.stored.values:
            plan.then(lambda: self._set(plan.stored.values[path]))
        elif structure_path(path) in plan.stored.values:
            plan.keep_fresh(path, "each rank saved its own, and this world has another size")
        else:
            plan.missing(join_name(path))

    def _state(self) -> Any:
        held = self._holder.value if isinstance(self._holder, PerRank) else self._holder
        return held.state_dict() if is_stateful(held) else held

    def _set(self, value: Any) -> None:
        held = self._holder.value if isinstance(self._holder, PerRank) else self._holder
        if is_stateful(held):
            held.load_state_dict(value)
        elif isinstance(self._holder, PerRank):
            self._holder.value = update_in_place(held, value)


def is_stateful(value: Any) -> bool:
    """Whether it keeps its own state: it has state_dict() and load_state_dict()."""
    if isinstance(value, type):
        return False
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def counts_for_itself(value: Any) -> bool:
    """Whether it is a torchdata loader or node, whose position is one rank's own."""
    return any(cls.__module__.split(".")[0] == "torchdata" for cls in type(value).__mro__)
