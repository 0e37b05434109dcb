"""The training state of one rank: what the user named, captured anew at each save and written back at resume.

RNG, data position and the loop belong to the Checkpointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn
from torch.optim import Optimizer

from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.captured import Capture, CapturedTensor, CapturedValue, Piece, Placed, Placement, Plain
from shardkeep.pytorch.collector import Collector, TensorNames
from shardkeep.pytorch.items import (
    ContainerItem,
    Item,
    MakesItem,
    ModuleItem,
    PerRankItem,
    StatefulItem,
    TensorItem,
    counts_for_itself,
    is_stateful,
)
from shardkeep.pytorch.marks import PerRank
from shardkeep.pytorch.optimizers import OptimizerItem, keeps_state_itself
from shardkeep.pytorch.pieces import is_tensor_like
from shardkeep.pytorch.restore import RestoreReport, restore_items
from shardkeep.pytorch.restore_plan import Allowed, UnusedNames
from shardkeep.pytorch.stored import StoredState
from shardkeep.pytorch.value_types import register_torch_values

__all__ = [
    "Capture",
    "CapturedTensor",
    "CapturedValue",
    "Piece",
    "Placed",
    "Placement",
    "Plain",
    "TrainingState",
]


class TrainingState:
    """The items whose state is kept, by top-level name.

    TypeError for what cannot be updated in place (int, float, str, bool, tuple, ...) and for names that start with @.
    """

    def __init__(self, items: Mapping[str, object]) -> None:
        register_torch_values()
        self._items = [make_item(name, value) for name, value in items.items()]

    @property
    def names(self) -> tuple[str, ...]:
        """The top-level names."""
        return tuple(item.name for item in self._items)

    def capture(self) -> Capture:
        """The state now: tensors as views of live memory, values as they are. Runs no collective."""
        names = TensorNames()
        ordered = sorted(self._items, key=lambda item: item.order)
        for item in ordered:
            item.add_names(names)
        collector = Collector(names)
        for item in ordered:
            item.capture(collector)
        return collector.finish()

    def restore(
        self,
        checkpoint: StoredState,
        *,
        rank: int,
        world_size: int,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        cast: bool = False,
        unused: UnusedNames | None = None,
    ) -> RestoreReport:
        """Write the checkpoint's state into the items, in the order modules, optimizers, others.

        Names are judged under the items' top-level names; `allow_missing` and `allow_unexpected` take names and leading
        parts of names. Raises MissingNames, ShapeMismatch, DtypeMismatch (unless `cast`) or LoadError before anything
        is written. `unused` tells which of the names this rank lacks no rank has; without it all those are unexpected.
        """
        allowed = Allowed(tuple(allow_missing), tuple(allow_unexpected), cast)
        return restore_items(self._items, checkpoint, rank=rank, world_size=world_size, allowed=allowed, unused=unused)


def make_item(name: str, value: object) -> Item:
    """The item for what the user gave; TypeError, with what to do, for anything else."""
    if not isinstance(name, str) or not name or name.startswith("@"):
        raise TypeError(f"{name!r} cannot name a state: names are texts that do not start with @")
    if isinstance(value, nn.Module):
        return ModuleItem(name, value)
    if isinstance(value, MakesItem):
        return value.shardkeep_item(name)
    if isinstance(value, Optimizer):
        return (
            StatefulItem(name, value, SliceKind.OPTIMIZER) if keeps_state_itself(value) else OptimizerItem(name, value)
        )
    if isinstance(value, PerRank) or counts_for_itself(value):
        return PerRankItem(name, value)
    if is_tensor_like(value):
        return TensorItem(name, value)  # type: ignore[arg-type]
    if is_stateful(value):
        return StatefulItem(name, value)
    if isinstance(value, dict | list):
        return ContainerItem(name, value)
    raise TypeError(
        f"{name} is {_a(value)}, which cannot be updated in place: put it in a dict, such as "
        f'state={{"{name}": {{"value": ...}}}}, and read it from there'
    )


def _a(value: object) -> str:
    return "a class" if isinstance(value, type) else f"of type {type(value).__name__}"
