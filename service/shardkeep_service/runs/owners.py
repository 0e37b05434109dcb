"""Planning who stores which plain tensor: pure, and the same whoever computes it.

Ranks with equal inventories form a group, so 1,024 data-parallel ranks cost as much as one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep.format.dtypes import dtype_named
from shardkeep.format.segments import SliceKind


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """One tensor of an inventory."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: int

    @property
    def size_bytes(self) -> int:
        """Its bytes when whole."""
        return math.prod(self.shape) * dtype_named(self.dtype).item_bytes


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks, ascending, that hold exactly these tensors."""

    ranks: tuple[int, ...]
    tensors: tuple[HeldTensor, ...]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two ranks hold a tensor of one name with another dtype or shape."""

    what: str
    name: str
    ranks: tuple[int, int]
    values: tuple[str, str]


@dataclass(frozen=True, slots=True)
class RankOwners:
    """Along one rank's inventory: how many ranks hold each tensor, its position among them, and the owner's."""

    holders: list[int]
    position: list[int]
    owner: list[int]


@dataclass(frozen=True, slots=True)
class OwnerPlan:
    """The owners of a layout; `answer` derives what one rank is told."""

    groups: tuple[Group, ...]
    group_of_rank: Mapping[int, int]
    held_by: Mapping[str, int]
    """Row of `holders` for each name."""
    holders: tuple[npt.NDArray[np.int64], ...]
    """Sets of ranks, ascending, that hold the same tensors."""
    owner: Mapping[str, int]
    """Position of the owner among the holders. Buffers are in nobody's care but each holder's own and are not here."""

    def answer(self, rank: int) -> RankOwners:
        """What one rank is told, in the order of its inventory."""
        positions = [int(np.searchsorted(ranks, rank)) for ranks in self.holders]
        sizes = [len(ranks) for ranks in self.holders]
        tensors = self.groups[self.group_of_rank[rank]].tensors
        rows = [self.held_by[tensor.name] for tensor in tensors]
        return RankOwners(
            holders=[sizes[row] for row in rows],
            position=[positions[row] for row in rows],
            owner=[self.owner.get(tensor.name, positions[row]) for tensor, row in zip(tensors, rows, strict=True)],
        )


def plan_owners(groups: Sequence[Group]) -> OwnerPlan | Disagreement:
    """The owners: big tensors first, each to the holder with the least bytes so far, the lowest rank among equals."""
    ordered = tuple(sorted(groups, key=lambda group: group.ranks))
    holding = _groups_by_name(ordered)
    disagreement = _find_disagreement(ordered)
    if disagreement is not None:
        return disagreement
    held_by, holders = _holder_sets(ordered, holding)
    tensors = {tensor.name: tensor for group in ordered for tensor in group.tensors}
    return OwnerPlan(
        groups=ordered,
        group_of_rank={rank: row for row, group in enumerate(ordered) for rank in group.ranks},
        held_by=held_by,
        holders=holders,
        owner=_assign(tensors, held_by, holders),
    )


def _groups_by_name(groups: Sequence[Group]) -> dict[str, list[int]]:
    holding: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        for tensor in group.tensors:
            holding[tensor.name].append(row)
    return holding


def _find_disagreement(groups: Sequence[Group]) -> Disagreement | None:
    """The first by name, between the lowest rank and the lowest one that says otherwise."""
    if len(groups) == 1:
        return None
    known: dict[str, tuple[HeldTensor, int]] = {}
    found: dict[str, Disagreement] = {}
    for group in groups:
        for tensor in group.tensors:
            first, rank = known.setdefault(tensor.name, (tensor, group.ranks[0]))
            ranks = (rank, group.ranks[0])
            if first.dtype != tensor.dtype:
                found.setdefault(tensor.name, Disagreement("dtype", tensor.name, ranks, (first.dtype, tensor.dtype)))
            elif first.shape != tensor.shape:
                shapes = (str(first.shape), str(tensor.shape))
                found.setdefault(tensor.name, Disagreement("shape", tensor.name, ranks, shapes))
    return found[min(found)] if found else None


def _holder_sets(
    groups: Sequence[Group], holding: Mapping[str, Sequence[int]]
) -> tuple[dict[str, int], tuple[npt.NDArray[np.int64], ...]]:
    rows: dict[tuple[int, ...], int] = {}
    holders: list[npt.NDArray[np.int64]] = []
    held_by: dict[str, int] = {}
    for name, found in holding.items():
        key = tuple(found)
        if key not in rows:
            rows[key] = len(holders)
            holders.append(np.array(sorted(rank for row in key for rank in groups[row].ranks), np.int64))
        held_by[name] = rows[key]
    return held_by, tuple(holders)


def _assign(
    tensors: Mapping[str, HeldTensor], held_by: Mapping[str, int], holders: Sequence[npt.NDArray[np.int64]]
) -> dict[str, int]:
    highest = max((int(ranks[-1]) for ranks in holders), default=-1)
    loads = np.zeros(highest + 1, np.int64)
    owner: dict[str, int] = {}
    for tensor in sorted(tensors.values(), key=lambda tensor: (-tensor.size_bytes, tensor.name)):
        if tensor.kind == SliceKind.BUFFER:
            continue
        ranks = holders[held_by[tensor.name]]
        position = int(np.argmin(loads[ranks]))
        owner[tensor.name] = position
        loads[ranks[position]] += tensor.size_bytes
    return owner
