"""Planning the restore of a module: in place into its live parameters and buffers, whatever is tied on either side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from shardkeep.format.names import join_name, plain_text
from shardkeep.pytorch.modules import ModuleState, NamedExtra, NamedTensor, module_state
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.stored import StoredTensor
from shardkeep.pytorch.ties import Ties
from shardkeep.pytorch.tree_restore import TreeRestore
from shardkeep.pytorch.trees import take_apart


def plan_module(plan: RestorePlan, keyword: str, module: nn.Module) -> None:
    """Add everything `module` needs, and report what the checkpoint has under `keyword` beyond that."""
    state = module_state(module)
    for names, entry in _tied_groups(keyword, state):
        _plan_tensor(plan, names, entry)
    built: dict[str, Callable[[], Any]] = {}
    for extra in state.extras:
        _plan_extra(plan, keyword, extra, built)
    if state.computed:
        plan.then(lambda: _load_computed(module, state, built))
    plan.judge_rest((keyword,))


def _tied_groups(keyword: str, state: ModuleState) -> list[tuple[list[str], NamedTensor]]:
    """Every live tensor once, with all its names."""
    ties = Ties()
    groups: dict[str, tuple[list[str], NamedTensor]] = {}
    for entry in state.tensors:
        name = join_name((keyword, *entry.parts))
        first = ties.first_name(entry.tensor, name)
        groups.setdefault(first, ([], entry))[0].append(name)
    return list(groups.values())


def _plan_tensor(plan: RestorePlan, names: list[str], entry: NamedTensor) -> None:
    stored = _first_stored(plan, names)
    if stored is None:
        plan.missing(names[0])
        return
    plan.write(stored, entry.tensor, names[0])
    for name in names:
        other = plan.stored.find(name)
        if other is not None and other.name != stored.name:
            plan.used.add(other.name)
            plan.notes.append(
                f"{plain_text(name)} and {plain_text(stored.name)} are tied here and were two tensors when saved; "
                f"{plain_text(stored.name)} was loaded"
            )


def _first_stored(plan: RestorePlan, names: list[str]) -> StoredTensor | None:
    for name in names:
        found = plan.stored.find(name)
        if found is not None:
            return found
    return None


def _plan_extra(plan: RestorePlan, keyword: str, extra: NamedExtra, built: dict[str, Callable[[], Any]]) -> None:
    parts = (keyword, *extra.parts)
    build = TreeRestore(plan, parts, take_apart(extra.value, parts), in_place=False).plan()
    if build is None:
        return
    owner = extra.owner
    if owner is None:
        built[extra.key] = build
    else:
        plan.then(lambda: owner.set_extra_state(build()))


def _load_computed(module: nn.Module, state: ModuleState, built: dict[str, Callable[[], Any]]) -> None:
    """What belongs to no module's registered tensors goes back the way it came: through load_state_dict()."""
    loaded: dict[str, Any] = {
        entry.key: entry.tensor.detach() for entry in state.tensors if entry.key in state.computed
    }
    loaded.update((key, build()) for key, build in built.items())
    module.load_state_dict(loaded, strict=False)
