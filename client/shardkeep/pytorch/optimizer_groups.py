"""The hyperparameters of an optimizer's groups: kept with the names of their parameters, matched by those names."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from shardkeep.errors import LoadError
from shardkeep.format.names import join_name
from shardkeep.pytorch.optimizer_state import NamedParameter

logger = logging.getLogger("shardkeep")

GROUPS: Final = "param_groups"
"""The last part of the path at which they are kept."""

_NOT_OPTIONS = frozenset({"params", "param_names"})
_HOW_NOT_WHAT = frozenset({"foreach", "fused", "capturable"})
"""How the step is computed here, on this device: the live choice stands."""


@dataclass(frozen=True, slots=True)
class StoredGroups:
    """What was saved of the groups. Names are joined names.

    `without_state`: parameters that were never stepped. `local_keys`: state keys held as plain local shards. `kept`:
    parameters of no group whose state was kept.
    """

    groups: tuple[tuple[tuple[str, ...], Mapping[str, Any]], ...]
    without_state: frozenset[str]
    local_keys: frozenset[str]
    kept: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every parameter that may have state."""
        return (*self.group_of, *self.kept)

    @property
    def group_of(self) -> dict[str, int]:
        """The group of each parameter."""
        return {name: index for index, (names, _) in enumerate(self.groups) for name in names}


def groups_value(
    param_groups: Sequence[Mapping[str, Any]],
    parameters: Sequence[NamedParameter],
    *,
    without_state: Sequence[str],
    local_keys: set[str],
    kept: Sequence[str],
) -> dict[str, Any]:
    """The value to keep."""
    groups = [
        {
            "params": [join_name(named.parts) for named in parameters if named.group == index],
            "options": {key: option for key, option in group.items() if key not in _NOT_OPTIONS},
        }
        for index, group in enumerate(param_groups)
    ]
    return {
        "groups": groups,
        "without_state": list(without_state),
        "local_keys": sorted(local_keys),
        "kept": list(kept),
    }


def stored_groups(value: Any, name: str) -> StoredGroups:
    """Read what `groups_value` made; LoadError if it is something else."""
    try:
        groups = tuple((tuple(group["params"]), dict(group["options"])) for group in value["groups"])
        return StoredGroups(
            groups, frozenset(value["without_state"]), frozenset(value["local_keys"]), tuple(value["kept"])
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise LoadError(f"the parameter groups of {name} in the checkpoint are not what an optimizer saved") from exc


def restore_options(
    keyword: str,
    live_groups: Sequence[dict[str, Any]],
    stored: StoredGroups,
    stored_names: Sequence[Sequence[str]],
) -> list[str]:
    """Write stored options into the live groups, whose dicts stay the same objects.

    `stored_names`: for each live group, the stored names of its parameters. Returns notes on what was not as saved. An
    option the checkpoint lacks keeps the optimizer's own value.
    """
    notes: list[str] = []
    group_of = stored.group_of
    for index, (live, names) in enumerate(zip(live_groups, stored_names, strict=True)):
        sources = [stored.groups[at][1] for at in dict.fromkeys(group_of[name] for name in names if name in group_of)]
        if sources:
            notes += _restore_group(f"{keyword} group {index}", live, sources)
    return notes


def _restore_group(where: str, live: dict[str, Any], sources: list[Mapping[str, Any]]) -> list[str]:
    notes = []
    keys = dict.fromkeys((*live, *(key for source in sources for key in source)))
    for key in keys:
        if key in _NOT_OPTIONS:
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
