"""An optimizer as an item: per-parameter state under parameter names, options by group.

One whose class has its own state_dict() or load_state_dict() is not taken apart like this: what it returns is kept as
for any stateful object, because only it knows what its state means.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Final, Protocol

import torch
from torch.optim import SGD, Optimizer
from torch.utils.hooks import RemovableHandle

from shardkeep.errors import StateError
from shardkeep.format.names import join_name
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.collector import Collector, TensorNames
from shardkeep.pytorch.kept_state import KeptState
from shardkeep.pytorch.optimizer_groups import LOCAL_KEYS, capture_groups, capture_kept_names
from shardkeep.pytorch.optimizer_restore import plan_optimizer
from shardkeep.pytorch.optimizer_state import (
    STATE,
    NamedParameter,
    check_orphans,
    optimizer_parameters,
    parameter_state,
)
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.state_layout import captured_state, shard_keys
from shardkeep.pytorch.trees import holds_tensors, structure_path

SHARED: Final = "shared"
"""The part under which state that belongs to no parameter is kept."""

ORDER: Final = 1


class OptimizerItem:
    """An optimizer that keeps its state in `state` and `param_groups`, as torch.optim's do."""

    order = ORDER

    def __init__(self, name: str, optimizer: Optimizer) -> None:
        self.name = name
        self._optimizer = optimizer
        self._kept = KeptState()
        self._has_stepped = False
        self._watch = watch_steps(self, optimizer)

    def add_names(self, names: TensorNames) -> None:
        """Register the tensors it names."""

    def capture(self, into: Collector) -> None:
        """Add its state to a capture."""
        optimizer = self._optimizer
        check_orphans(optimizer, self.name)
        if self._has_stepped and not self._kept.parameters:
            self._watch.remove()  # it has learned all there is to learn
        parameters = list(optimizer_parameters(optimizer, self.name, into.names))
        without_state = 0
        local_keys: set[str] = set()
        states = [(named.parameter, optimizer.state.get(named.parameter) or {}) for named in parameters]
        keys = shard_keys(states)
        for named, (_, state) in zip(parameters, states, strict=True):
            if not state:
                without_state += 1
            else:
                local_keys |= self._capture_parameter(into, named, state, keys)
        if parameters and without_state == len(parameters):
            self._check_may_be_empty()
        capture_groups(into, self.name, optimizer.param_groups, parameters)
        capture_kept(into, self.name, self._kept, parameters)
        for key in sorted(local_keys):
            into.add_value((self.name, LOCAL_KEYS, key), True)
        self._capture_shared(into)

    def plan(self, plan: RestorePlan) -> None:
        """Add its restore to a plan."""
        self._kept = KeptState()
        plan_optimizer(plan, self.name, self._optimizer, self._kept)
        plan.then(self._watch_again)
        plan.then(self._forget_steps)

    def _capture_parameter(
        self, into: Collector, named: NamedParameter, state: dict[str, Any], keys: frozenset[str]
    ) -> set[str]:
        sorted_state = parameter_state(named, state, (self.name, STATE, *named.parts), keys)
        for captured in sorted_state.tensors:
            into.add_captured(captured)
        for path, own in sorted_state.per_rank.items():
            into.add_value(path, own, per_rank=True)
        for path, other in sorted_state.others.items():
            if holds_tensors(other):
                into.add_tree(other, path, SliceKind.OPTIMIZER)
            else:
                into.add_value(path, other)
        return sorted_state.local_keys

    def _capture_shared(self, into: Collector) -> None:
        shared = {key: state for key, state in self._optimizer.state.items() if not isinstance(key, torch.Tensor)}
        if shared:
            into.add_tree(shared, (self.name, SHARED), SliceKind.OPTIMIZER)

    def _check_may_be_empty(self) -> None:
        optimizer = self._optimizer
        if not self._has_stepped or not type(optimizer).__module__.startswith("torch.optim"):
            return
        if isinstance(optimizer, SGD) and all(not group["momentum"] for group in optimizer.param_groups):
            return
        raise StateError(
            f"{self.name} ({type(optimizer).__name__}) has stepped and holds no state for any parameter; saving it "
            "would lose the moments. Something cleared or replaced optimizer.state"
        )

    def _forget_steps(self) -> None:
        """What was restored may be from before the first step, without any state."""
        self._has_stepped = False

    def _watch_again(self) -> None:
        self._watch.remove()
        self._watch = watch_steps(self, self._optimizer)

    def before_step(self) -> None:
        """Called before each step of the optimizer, with gradients in place."""
        if self._kept.parameters:
            self._kept.install(self._optimizer)
        if not self._has_stepped:
            self._has_stepped = any(
                p.grad is not None for group in self._optimizer.param_groups for p in group["params"]
            )


def capture_kept(into: Collector, keyword: str, kept_state: KeptState, parameters: Sequence[NamedParameter]) -> None:
    """State that was loaded for parameters the optimizer does not have now, so that no save loses it."""
    names = []
    present = {id(named.parameter) for named in parameters}
    for kept in kept_state.parameters:
        if id(kept.parameter) in present:
            continue
        names.append(join_name(kept.prefix[2:]))
        for path, tensor in kept.tensors.items():
            into.add_captured(captured_state(path, kept.parameter, tensor, as_shard=path in kept.shards))
        for path, value in kept.values.items():
            into.add_value(path, value)
        for path, structure in kept.structures.items():
            into.add_value(structure_path(path), structure)
    capture_kept_names(into, keyword, names)


class SeesSteps(Protocol):
    """An item that wants to know of steps."""

    def before_step(self) -> None:
        """Called before each step."""
        ...


def watch_steps(item: SeesSteps, optimizer: Optimizer) -> RemovableHandle:
    """Learn of steps without keeping the item alive or touching anything but the hook list."""
    reference = weakref.ref(item)

    def before_step(*_: Any) -> None:
        found = reference()
        if found is not None:
            found.before_step()

    return optimizer.register_step_pre_hook(before_step)


def keeps_state_itself(optimizer: Optimizer) -> bool:
    """Whether its class replaces state_dict() or load_state_dict()."""
    cls = type(optimizer)
    return cls.state_dict is not Optimizer.state_dict or cls.load_state_dict is not Optimizer.load_state_dict
