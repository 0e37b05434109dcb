"""The hyperparameters of an optimizer's groups: kept with the names of their parameters, matched by those names.

Each group is kept at a path of its own, named by its parameters, so that the groups of all ranks (pipeline stages,
experts) stand beside each other in a checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from shardkeep.errors import LoadError
from shardkeep.format.names import join_name
from shardkeep.pytorch.collector import Collector, digest_part
from shardkeep.pytorch.optimizer_state import NamedParameter
from shardkeep.pytorch.pieces import Parts
from shardkeep.pytorch.stored import Stored, readable

logger = logging.getLogger("shardkeep")

GROUPS: Final = "param_groups"
"""Below it, at a digest of their names, the parameters and the options of each group."""
LOCAL_KEYS: Final = "local_keys"
"""Below it the keys of state that is held as plain local shards."""

_PARAMETERS: Final = "params"
_OPTIONS: Final = "options"
NOT_OPTIONS: Final = frozenset({"params", "param_names"})
"""Keys of a group that say what is in it, not how it is stepped."""
_HOW_NOT_WHAT = frozenset({"foreach", "fused", "capturable"})
"""How the step is computed here, on this device: the live choice stands."""


def capture_groups(
    into: Collector, keyword: str, param_groups: Sequence[Mapping[str, Any]], parameters: Sequence[NamedParameter]
) -> None:
    """Add the groups that have parameters."""
    for index, group in enumerate(param_groups):
        names = [join_name(named.parts) for named in parameters if named.group == index]
        if names:
            options = {key: option for key, option in group.items() if key not in NOT_OPTIONS}
            into.add_value((*_add_names(into, keyword, names), _OPTIONS), options)


def capture_kept_names(into: Collector, keyword: str, names: Sequence[str]) -> None:
    """Add parameters of no group whose state was kept."""
    if names:
        _add_names(into, keyword, names)


def _add_names(into: Collector, keyword: str, names: Sequence[str]) -> Parts:
    ordered = sorted(names)
    path = (keyword, GROUPS, digest_part(ordered))
    into.add_value((*path, _PARAMETERS), ordered)
    return path


class StoredGroups:
    """What was saved of the groups of one optimizer, by joined names of parameters.

    The groups of other ranks are read only when a parameter is in none of those read before.
    """

    def __init__(self, stored: Stored, keyword: str) -> None:
        self.keyword = keyword
        self.paths = stored.values_below((keyword, GROUPS))
        self.local_keys = frozenset(path[2] for path in stored.values_below((keyword, LOCAL_KEYS)))
        self._stored = stored
        self._values: Mapping[Parts, Any] = stored.values
        members: Iterable[Parts] = self.paths
        if (keyword, GROUPS) in stored.values:  # as `Run.save` keeps a dict without arrays: one value
            members = self._values = _one_by_one(stored.values[keyword, GROUPS], (keyword, GROUPS))
        self._unread = [path for path in members if path[-1] == _PARAMETERS]
        self._group_of: dict[str, Parts] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._group_of

    def first(self, names: Iterable[str]) -> str | None:
        """The first of these names that is in a group."""
        candidates = list(names)
        while True:
            found = next((name for name in candidates if name in self._group_of), None)
            if found is not None or not self._unread:
                return found
            self._read(self._unread.pop(0))

    def options(self, names: Iterable[str]) -> tuple[list[Mapping[str, Any]], list[Parts]]:
        """The options of every group that has one of these names; and the groups whose options ranks keep apart."""
        found: list[Mapping[str, Any]] = []
        withheld: list[Parts] = []
        for group in dict.fromkeys(self._group_of[name] for name in names if name in self._group_of):
            path = (*group, _OPTIONS)
            if path in self._values:
                found.append(_checked(self._values[path], dict, path))
            elif self._stored.unreadable_below(path):
                withheld.append(path)
        return found, withheld

    def _read(self, path: Parts) -> None:
        for name in _checked(self._values[path], list, path):
            self._group_of.setdefault(name, path[:-1])


def _one_by_one(groups: Any, at: Parts) -> dict[Parts, Any]:
    """The members of all groups by path. What is no dict of dicts has none."""
    named = groups.items() if isinstance(groups, Mapping) else ()
    return {
        (*at, str(name), str(key)): member
        for name, group in named
        if isinstance(group, Mapping)
        for key, member in group.items()
    }


def _checked(value: Any, expected: type, path: Parts) -> Any:
    if not isinstance(value, expected):
        raise LoadError(f"{readable(path)} in the checkpoint is not what an optimizer saved: {type(value).__name__}")
    return value


def restore_options(
    live_groups: Sequence[dict[str, Any]], stored: StoredGroups, stored_names: Sequence[Sequence[str]]
) -> list[str]:
    """Write stored options into the live groups, whose dicts stay the same objects.

    `stored_names`: for each live group, the stored names of its parameters. Returns notes on what was not as saved. An
    option the checkpoint lacks keeps the optimizer's own value.
    """
    notes: list[str] = []
    for index, (live, names) in enumerate(zip(live_groups, stored_names, strict=True)):
        where = f"{stored.keyword} group {index}"
        sources, withheld = stored.options(names)
        if withheld:
            notes.append(f"{where} keeps its own options: they differed by rank when saved")
        elif sources:
            notes += restore_group(where, live, sources)
    return notes


def restore_group(where: str, live: dict[str, Any], sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the options of one group, which may come of several; notes on what was not as saved."""
    notes = []
    keys = dict.fromkeys((*live, *(key for source in sources for key in source)))
    for key in keys:
        if key in NOT_OPTIONS:
            continue
        found = [source[key] for source in sources if key in source]
        if not found:
            logger.info("%s: the checkpoint has no option %r; the optimizer's own %r stays", where, key, live[key])
        elif any(not same(found[0], other) for other in found[1:]):
            notes.append(f"{where} keeps its own {key}: its parameters were in groups with different ones when saved")
        elif key in _HOW_NOT_WHAT and key in live:
            if live[key] != found[0]:
                notes.append(f"{where} keeps {key}={live[key]!r}; it was {found[0]!r} when saved")
        else:
            live[key] = _in_place(live.get(key), found[0])
    return notes


def _in_place(live: Any, stored: Any) -> Any:
    """A live tensor option stays the same tensor, which compiled code and graphs hold; others become what was saved."""
    if not isinstance(live, torch.Tensor):
        return stored.clone() if isinstance(stored, torch.Tensor) else stored
    if isinstance(stored, torch.Tensor) and (stored.dtype != live.dtype or stored.shape != live.shape):
        return stored.to(live.device)
    with torch.no_grad():
        live.copy_(stored) if isinstance(stored, torch.Tensor) else live.fill_(stored)
    return live


def same(left: Any, right: Any) -> bool:
    """Equality that knows tensors."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        both = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
        return both and left.dtype == right.dtype and torch.equal(left, right)
    return bool(left == right)
