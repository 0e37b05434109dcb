"""The user's optimizer over plain tensors: one leaf for each slice that a tile holds.

It sees flat fp32 (or `master_dtype`) leaves, or whole matrices with `layout="whole"`, so foreach and fused kernels run
as they do without us, and per-parameter counters, weight-decay groups and schedulers keep their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.optimizer_groups import NOT_OPTIONS
from shardkeep.zero.layout import ParameterSpec, Slice

InnerFactory = Callable[..., Optimizer]


class StepOptions:
    """The options of all groups during one step. Every tile starts from those before it, so what an optimizer keeps in
    its groups (a count of steps) moves on once a step, not once a tile.
    """

    def __init__(self, groups: Sequence[dict[str, Any]]) -> None:
        self.groups = groups
        self._before = [{key: value for key, value in group.items() if key not in NOT_OPTIONS} for group in groups]
        self._changes: list[dict[str, Any]] = [{} for _ in groups]

    def give(self, inner: dict[str, Any]) -> None:
        """To a group of a tile's optimizer, before it steps."""
        inner.update(self._before[inner["of_group"]])

    def take(self, inner: Mapping[str, Any]) -> None:
        """What a tile's optimizer changed."""
        number = inner["of_group"]
        before = self._before[number]
        self._changes[number].update((key, inner[key]) for key in before if inner[key] is not before[key])

    def keep(self) -> None:
        """Puts what was changed into the groups, after all tiles."""
        for group, changes in zip(self.groups, self._changes, strict=True):
            group.update(changes)


class InnerTile:
    """The leaves of one tile and the optimizer that steps them. State is made by its first real step, never before."""

    def __init__(
        self,
        factory: InnerFactory,
        slices: Sequence[Slice],
        specs: Sequence[ParameterSpec],
        group_of: Sequence[int],
        *,
        begin: int,
        whole: bool,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`begin`: the element of the bucket at which the tile's memory starts."""
        self.slices = tuple(slices)
        self._slice_of = {one.parameter: one for one in self.slices}
        self._specs = specs
        self._begin = begin
        self._whole = whole
        self._factory = factory
        self._group_of = group_of
        self.leaves = {one.parameter: nn.Parameter(torch.empty(0, dtype=dtype, device=device)) for one in self.slices}
        self._optimizer: Optimizer | None = None
        self._checked: set[int] = set()

    @property
    def state(self) -> dict[int, dict[str, Any]]:
        """The optimizer's state of each parameter that has one, by index of the parameter."""
        if self._optimizer is None:
            return {}
        return {
            index: self._optimizer.state[leaf] for index, leaf in self.leaves.items() if leaf in self._optimizer.state
        }

    @property
    def is_made(self) -> bool:
        """Whether the optimizer exists; it is made when it is needed."""
        return self._optimizer is not None

    def state_of(self, index: int) -> dict[str, Any]:
        """The optimizer's state of one parameter; empty if it has none."""
        if self._optimizer is None or self.leaves[index] not in self._optimizer.state:
            return {}
        found: dict[str, Any] = self._optimizer.state[self.leaves[index]]
        return found

    def set_state(self, index: int, state: dict[str, Any] | None, groups: Sequence[Mapping[str, Any]]) -> None:
        """Replaces the state of a parameter; None: as if it was never stepped."""
        if not state and self._optimizer is None:
            return
        optimizer, leaf = self._made(groups), self.leaves[index]
        if state:
            shaped = {
                key: value.view(leaf.shape)
                if isinstance(value, torch.Tensor) and value.numel() == leaf.numel() and value.ndim
                else value
                for key, value in state.items()
            }
            optimizer.state[leaf] = shaped
        else:
            optimizer.state.pop(leaf, None)
            fresh = self._factory([{"params": [leaf]}])  # some make state at once, and look for it in their first step
            if leaf in fresh.state:
                optimizer.state[leaf] = fresh.state[leaf]

    def point(self, master: torch.Tensor, gradient: torch.Tensor | None) -> None:
        """Lets the leaves be views of the tile's memory, of one element each for every element of the tile."""
        for one in self.slices:
            leaf = self.point_one(one, master)
            at = one.offset - self._begin
            leaf.grad = None if gradient is None else gradient[at : at + one.size].view(leaf.shape).to(leaf.dtype)

    def point_one(self, one: Slice, master: torch.Tensor) -> nn.Parameter:
        """The leaf of a slice, as a view of the tile's memory."""
        at = one.offset - self._begin
        leaf = self.leaves[one.parameter]
        leaf.data = master[at : at + one.size].view(self._specs[one.parameter].shape if self._whole else (one.size,))
        return leaf

    def slice_of(self, index: int) -> Slice | None:
        """What the tile has of a parameter."""
        return self._slice_of.get(index)

    def step(self, options: StepOptions, touched: Callable[[int], bool]) -> None:
        """One step of the leaves that have a gradient on any rank."""
        for index, leaf in self.leaves.items():
            if not touched(index):
                leaf.grad = None
        if all(leaf.grad is None for leaf in self.leaves.values()):
            return
        optimizer = self._made(options.groups)
        for group in optimizer.param_groups:
            options.give(group)
        optimizer.step()
        for group in optimizer.param_groups:
            options.take(group)
        if not self._whole:
            self._check_elementwise(optimizer)

    def release(self) -> None:
        """Lets go of the memory that the leaves are views of."""
        for leaf in self.leaves.values():
            leaf.grad = None
            leaf.data = torch.empty(0, dtype=leaf.dtype, device=leaf.device)

    def _made(self, groups: Sequence[Mapping[str, Any]]) -> Optimizer:
        if self._optimizer is None:
            made: dict[int, dict[str, Any]] = {}
            for index, leaf in self.leaves.items():
                group = self._group_of[index]
                options = {key: value for key, value in groups[group].items() if key not in NOT_OPTIONS}
                made.setdefault(group, {"params": [], **options, "of_group": group})["params"].append(leaf)
            self._optimizer = self._factory(list(made.values()))
        return self._optimizer

    def _check_elementwise(self, optimizer: Optimizer) -> None:
        """Of the state that was made by the first step."""
        for index, leaf in self.leaves.items():
            if index in self._checked or leaf not in optimizer.state:
                continue
            self._checked.add(index)
            for key, value in optimizer.state[leaf].items():
                inside = [one for one in tree_leaves(value) if isinstance(one, torch.Tensor) and one.ndim]
                if any(one is not value or one.shape != leaf.shape for one in inside):
                    raise ConfigurationError(
                        f"{type(optimizer).__name__} keeps {key} of shape {tuple(inside[0].shape)} for a slice of"
                        f" {self._specs[index].name} with {leaf.numel()} elements: it does not work element by element."
                        ' Give layout="whole", so that each parameter has one owner'
                    )
