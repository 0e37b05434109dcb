"""Planning the restore of an optimizer: state in place where it exists, else made, placed like its parameter.

No step is run, nothing is cast to the parameter's dtype, and the order of parameters plays no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from shardkeep.format.names import join_name, split_name
from shardkeep.pytorch.kept_state import KeptParameter, KeptState, make_kept
from shardkeep.pytorch.masters import MASTER, Stepped, note_rounding
from shardkeep.pytorch.optimizer_groups import LOCAL_KEYS, StoredGroups, restore_options
from shardkeep.pytorch.optimizer_state import STATE, NamedParameter, optimizer_parameters
from shardkeep.pytorch.pieces import Parts, dtype_of
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.state_tensor import StateTensor, state_device
from shardkeep.pytorch.stored import StoredTensor
from shardkeep.pytorch.tree_restore import TreeRestore
from shardkeep.pytorch.trees import structure_path, take_apart, update_in_place


def plan_optimizer(plan: RestorePlan, keyword: str, optimizer: Optimizer, kept: KeptState) -> None:
    """Add everything the optimizer needs. `kept` takes the state of parameters it does not have."""
    groups = StoredGroups(plan.stored, keyword)
    if not groups.paths and any(group["params"] for group in optimizer.param_groups):
        plan.missing(join_name((keyword,)))
        return
    plan.used_values.update(groups.paths, plan.stored.values_below((keyword, LOCAL_KEYS)))
    restore = OptimizerRestore(plan, optimizer, groups)
    names = [[] for _ in optimizer.param_groups]  # type: list[list[str]]
    for named in optimizer_parameters(optimizer, keyword, plan.names):
        found = restore.plan_parameter(named)
        if found is not None:
            names[named.group].append(found)
    restore.plan_absent(kept)
    restore.plan_shared()
    plan.then(lambda: plan.notes.extend(restore_options(optimizer.param_groups, groups, names)))
    plan.judge_rest((keyword,))


class OptimizerRestore:
    """One optimizer's restore in the making."""

    def __init__(self, plan: RestorePlan, optimizer: Optimizer, groups: StoredGroups) -> None:
        self._plan = plan
        self._keyword = groups.keyword
        self._optimizer = optimizer
        self._groups = groups
        self._found: set[str] = set()

    def plan_parameter(self, named: NamedParameter) -> str | None:
        """Plan the state of one parameter; the name under which it was saved, None if it was not there."""
        name = self.find(named)
        if name is None:
            self._plan.missing(join_name((self._keyword, STATE, *named.parts)))
            return None
        prefix = (self._keyword, STATE, *split_name(name))
        live = self._optimizer.state.get(named.parameter, {})
        group = self._optimizer.param_groups[named.group]
        lost = {path[len(prefix)] for path in self._plan.stored.unreadable_below(prefix)}
        if not lost <= set(live):
            self._leave_fresh(prefix, named.parameter, lost)
            return name
        builds = {key: _kept_live(live[key]) for key in lost}
        builds |= self._plan_keys(prefix, named, live, group)
        self._plan.then(lambda: self._write(named.parameter, builds))
        return name

    def _plan_keys(
        self, prefix: Parts, named: NamedParameter, live: dict[str, Any], group: dict[str, Any]
    ) -> dict[str, Callable[[], Any]]:
        """For each saved key of one parameter, what gives its state after the reads."""
        plan, at, parameter = self._plan, len(prefix), named.parameter
        builds: dict[str, Callable[[], Any]] = {}
        paths = {name: path for name in plan.stored.tensors_below(prefix) if len(path := split_name(name)) == at + 1}
        tensors = {path[at]: plan.stored.tensors[name] for name, path in paths.items()}
        stepped = Stepped.of(plan, named.names, tensors.pop(MASTER, None) if MASTER not in live else None)
        stepped.plan_weights(plan, dtype_of(parameter))
        for key, stored in tensors.items():
            dtype = self._dtype_of(stored, stepped, parameter, live.get(key))
            note_rounding(plan, stored, dtype)
            is_local = key in self._groups.local_keys
            state = StateTensor(stored, parameter, live.get(key), group, is_local=is_local, dtype=dtype)
            plan.create(stored, state.place)
            builds[key] = state.built
        for path in plan.stored.values_below(prefix):
            if len(path) == at + 1:
                plan.used_values.add(path)
                builds[path[at]] = _value_build(plan.stored.values[path], parameter, group)
        for nested in plan.stored.values_below(structure_path(prefix)):
            path = nested[1:]
            build = TreeRestore(plan, path, take_apart(live.get(path[at]), path), in_place=False).plan()
            if build is not None:
                builds[path[at]] = build
        return builds

    def _dtype_of(self, stored: StoredTensor, stepped: Stepped, parameter: torch.Tensor, live: Any) -> str:
        """As saved; but torch's optimizers step with state in the parameter's dtype, which had been the master's."""
        wanted = stepped.state_dtype(stored, parameter, dtype_of(parameter))
        if stepped.master is None:
            return stored.dtype
        if isinstance(live, torch.Tensor):
            return wanted if dtype_of(live) == wanted else stored.dtype
        return wanted if type(self._optimizer).__module__.startswith("torch.optim") else stored.dtype

    def find(self, named: NamedParameter) -> str | None:
        """The name under which a parameter was saved; None if it was not."""
        name = self._stored_name([join_name(parts) for parts in named.names])
        if name is not None:
            self._found.add(name)
        return name

    def _leave_fresh(self, prefix: Parts, parameter: torch.Tensor, lost: set[str]) -> None:
        """Half a state would be taken for a whole one: without what ranks kept for themselves it starts anew."""
        plan = self._plan
        plan.used.update(plan.stored.tensors_below(prefix))
        plan.used_values.update(plan.stored.values_below(prefix))
        plan.keep_fresh(prefix, f"{', '.join(sorted(lost))} described the shard of one rank of another world size")
        plan.then(lambda: self._write(parameter, {}))

    def _stored_name(self, names: Sequence[str]) -> str | None:
        aliases = self._plan.stored.aliases
        tied = [aliases[name] for name in names if name in aliases]
        return self._groups.first((*names, *tied, *(alias for alias, first in aliases.items() if first in names)))

    def _write(self, parameter: torch.Tensor, builds: dict[str, Callable[[], Any]]) -> None:
        """The state becomes exactly what was saved; a parameter that was never stepped then has none now."""
        if not builds:
            self._optimizer.state.pop(parameter, None)
            return
        state = {key: build() for key, build in builds.items()}
        live = self._optimizer.state.get(parameter)
        if isinstance(live, dict):
            update_in_place(live, state)
        else:
            self._optimizer.state[parameter] = state

    def plan_absent(self, kept: KeptState) -> None:
        """Saved parameters that the optimizer lacks: kept if a module has them, else reported as unexpected."""
        stored = self._plan.stored
        for parts, parameter in self._plan.names.by_name.items():
            name, prefix = join_name(parts), (self._keyword, STATE, *parts)
            has_state = stored.tensors_below(prefix) or stored.values_below(prefix)
            if name not in self._found and (has_state or name in self._groups):
                self._keep(kept, KeptParameter(parameter, prefix))

    def _keep(self, kept: KeptState, entry: KeptParameter) -> None:
        plan = self._plan
        for name in plan.stored.tensors_below(entry.prefix):
            stored = plan.stored.tensors[name]
            plan.create(stored, lambda stored=stored: make_kept(entry, stored))  # type: ignore[misc]
        for path in plan.stored.values_below(entry.prefix):
            plan.used_values.add(path)
            entry.values[path] = plan.stored.values[path]
        for path in plan.stored.values_below(structure_path(entry.prefix)):
            entry.structures[path[1:]] = plan.stored.values[path]
        kept.parameters.append(entry)

    def plan_shared(self) -> None:
        """State that belongs to no parameter."""
        parts = (self._keyword, "shared")
        if structure_path(parts) not in self._plan.stored.values:
            return
        live = {key: state for key, state in self._optimizer.state.items() if not isinstance(key, torch.Tensor)}
        build = TreeRestore(self._plan, parts, take_apart(live, parts), in_place=False).plan()
        if build is not None:
            self._plan.then(lambda: self._optimizer.state.update(build()))


def _kept_live(value: Any) -> Callable[[], Any]:
    return lambda: value


def _value_build(value: Any, parameter: torch.Tensor, group: dict[str, Any]) -> Callable[[], Any]:
    return lambda: _moved(value, parameter, group)


def _moved(value: Any, parameter: torch.Tensor, group: dict[str, Any]) -> Any:
    """The value with the tensors inside on the device where the optimizer expects them."""
    if isinstance(value, torch.Tensor):
        return value.to(state_device(value, parameter, group))
    if type(value) is dict:
        return {key: _moved(item, parameter, group) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_moved(item, parameter, group) for item in value)
    return value
