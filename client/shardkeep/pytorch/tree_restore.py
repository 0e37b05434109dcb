"""Planning the restore of a nested container: which leaves are read in place, which are made, which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from shardkeep.format.names import join_name
from shardkeep.pytorch import dtensors
from shardkeep.pytorch.captured import Piece
from shardkeep.pytorch.pieces import Parts, TensorLike, global_shape, pieces_of
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.stored import StoredTensor, readable
from shardkeep.pytorch.tensors import empty_like_stored
from shardkeep.pytorch.trees import (
    ABSENT,
    TENSOR_LEAF,
    VALUE_LEAF,
    Leaves,
    Structure,
    leaf_kinds,
    part_of,
    put_together,
    structure_path,
)

Build = Callable[[], Any]


class TreeRestore:
    """The restore of one tree at `parts`, whose live state is `live`.

    `in_place`: tensors are read into the live ones, and live leaves that the checkpoint lacks count as missing.
    Otherwise every tensor is made anew, like the live one of the same path where there is one, and the owner of the
    tree judges what it gets.
    """

    def __init__(self, plan: RestorePlan, parts: Parts, live: Leaves, *, in_place: bool) -> None:
        self._plan = plan
        self._parts = parts
        self._live = live
        self._in_place = in_place
        self._tensors: dict[Parts, Any] = {}
        self._values: dict[Parts, Any] = {}
        self._live_values = {**live.values, **live.per_rank}
        self._saved_plain = False

    def plan(self) -> Build | None:
        """Add the reads to the plan; what gives the tree after them, or None if the checkpoint has nothing of it."""
        structure = self._structure()
        if structure is None:
            self._plan.missing(join_name(self._parts))
            return None
        kinds = leaf_kinds(structure, self._parts)
        if self._in_place:
            self._check_container(structure)
            structure = self._with_kept(structure, self._known(kinds))
        for path, kind in leaf_kinds(structure, self._parts).items():
            if kind == TENSOR_LEAF:
                self._plan_tensor(path)
            else:
                self._plan_value(path)
        if self._saved_plain:
            self._plan.judge_rest(self._parts)
        final = structure
        return lambda: put_together(final, self._parts, self._leaf)

    def _structure(self) -> Structure | None:
        stored = self._plan.stored
        found: Structure | None = stored.values.get(structure_path(self._parts))
        if found is not None:
            return found
        self._saved_plain = True  # by run.save: the same names and paths, and no structure
        if stored.value_path(self._parts) is not None:
            return VALUE_LEAF
        known = stored.tensors_below(self._parts) or stored.values_below(self._parts)
        return self._live.structure if known else None

    def _known(self, kinds: dict[Parts, str]) -> dict[Parts, str]:
        """The leaves that the checkpoint has; where the structure is the live one, not all of them."""
        if not self._saved_plain:
            return kinds
        stored = self._plan.stored
        return {path: kind for path, kind in kinds.items() if path in stored.values or stored.find(join_name(path))}

    def _check_container(self, structure: Structure) -> None:
        """A dict cannot become a list in place, nor the other way round."""
        whole = self._plan.stored.values.get(self._parts)
        stored_kind = _kind_of(whole) if structure == VALUE_LEAF else structure[0].removeprefix("ordered_")
        live = self._live
        live_kind = _kind_of(live.values.get(self._parts)) if live.structure == VALUE_LEAF else live.structure[0]
        if {stored_kind, live_kind.removeprefix("ordered_")} == {"dict", "list"}:
            self._plan.impossible(
                f"{readable(self._parts)} is a {stored_kind} in the checkpoint and a {live_kind} here"
            )

    def _with_kept(self, structure: Structure, kinds: dict[Parts, str]) -> Structure:
        """The stored structure with the live leaves that it lacks: judged missing, kept if that is allowed."""
        lacking = {path for path in self._live.paths if not _covered(path, kinds)}
        for path in sorted(lacking):
            self._plan.missing(join_name(path))
        return _merged(structure, self._live.structure, self._parts, lacking)

    def _plan_tensor(self, path: Parts) -> None:
        name = join_name(path)
        stored = self._plan.stored.find(name)
        live = self._live.tensors.get(path)
        if stored is None:
            if live is None or path not in self._live.tensors:
                self._plan.missing(name)
            else:
                self._tensors[path] = live
        elif live is not None and self._in_place:
            self._plan.write(stored, live, name)
            self._tensors[path] = live
        elif self._in_place:
            self._plan.offer(stored, lambda: self._make(path, stored, live))
        else:
            self._plan.create(stored, lambda: self._make(path, stored, live))

    def _make(self, path: Parts, stored: StoredTensor, live: TensorLike | None) -> tuple[Piece, ...]:
        made = make_like(stored, live)
        self._tensors[path] = made
        return pieces_of(made, readable(path))[0]

    def _plan_value(self, path: Parts) -> None:
        found = self._plan.stored.value_path(path) if self._saved_plain else path
        self._plan.used_values.add(found or path)
        if found is not None and found in self._plan.stored.values:
            self._values[path] = self._plan.stored.values[found]
            return
        if path in self._live_values:
            self._values[path] = self._live_values[path]
        if self._saved_plain and not self._in_place:
            self._plan.missing(join_name(path))
        elif not _is_allowed_missing(self._plan, path):
            self._plan.keep_fresh(path, "each rank saved its own, and this world has another size")

    def _leaf(self, path: Parts, kind: str) -> Any:
        return self._tensors.get(path, ABSENT) if kind == TENSOR_LEAF else self._values.get(path, ABSENT)


def _kind_of(value: Any) -> str:
    return "dict" if isinstance(value, dict) else "list" if isinstance(value, list) else "value"


def _is_allowed_missing(plan: RestorePlan, path: Parts) -> bool:
    return readable(path) in plan.kept_fresh


def make_like(stored: StoredTensor, live: TensorLike | None) -> torch.Tensor:
    """New memory for a stored tensor: sharded and placed like `live` if that has its shape, else whole on the CPU."""
    if not isinstance(live, torch.Tensor):
        return empty_like_stored(stored.dtype, stored.shape)
    if isinstance(live, DTensor) and global_shape(live) == tuple(stored.shape):
        local = dtensors.local_tensor(live)
        return dtensors.like(live, empty_like_stored(stored.dtype, local.shape, local.device))
    device = dtensors.local_tensor(live).device if isinstance(live, DTensor) else live.device
    return empty_like_stored(stored.dtype, stored.shape, device)


def _covered(path: Parts, kinds: dict[Parts, str]) -> bool:
    """Whether a stored leaf is this one, above it or below it."""
    above = any(path[:length] in kinds for length in range(1, len(path) + 1))
    return above or any(other[: len(path)] == path for other in kinds)


def _merged(stored: Structure, live: Structure, parts: Parts, lacking: set[Parts]) -> Structure:
    if isinstance(stored, str) or isinstance(live, str):
        return stored
    here = {part_of(key): item for key, item in live[1]}
    there = {part_of(key) for key, _ in stored[1]}
    above = {gone[: len(parts) + 1] for gone in lacking}
    items = []
    for key, item in stored[1]:
        part = part_of(key)
        items.append([key, _merged(item, here[part], (*parts, part), lacking) if part in here else item])
    for key, item in live[1]:
        if part_of(key) not in there and (*parts, part_of(key)) in above:
            items.append([key, item])
    return [stored[0], items]
