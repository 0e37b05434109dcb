"""Writing a checkpoint back into the items: every check first, then the reads, then what depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shardkeep.pytorch.collector import TensorNames
from shardkeep.pytorch.items import Item
from shardkeep.pytorch.reading import read_targets
from shardkeep.pytorch.restore_plan import Allowed, RestorePlan, UnusedNames
from shardkeep.pytorch.stored import Stored, StoredState


@dataclass(slots=True)
class RestoreReport:
    """What came of a restore.

    `kept_fresh`: names that kept what they had: allowed to be missing, or per rank on another world size.
    `notes`: what makes the state differ from the saved one; empty if it is bit-equal.
    """

    kept_fresh: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tensors: int = 0
    read_bytes: int = 0


def restore_items(
    items: Sequence[Item],
    checkpoint: StoredState,
    *,
    rank: int,
    world_size: int,
    allowed: Allowed,
    unused: UnusedNames | None = None,
) -> RestoreReport:
    """Restore all items. LoadError, with nothing written, if names, shapes or dtypes do not fit.

    Stored names that these items do not have are wrong unless `unused` knows of a rank that has them.
    """
    same_world = checkpoint.info.world_size == world_size
    stored = Stored(checkpoint.tensors(), checkpoint.readable_values(rank if same_world else None))
    names = TensorNames()
    ordered = sorted(items, key=lambda item: item.order)
    for item in ordered:
        item.add_names(names)
    plan = RestorePlan(stored, names, allowed)
    for item in ordered:
        item.plan(plan)
    try:
        plan.check(unused)
        read_bytes = read_targets(plan.targets, checkpoint, rank=rank if same_world else 0)
        for action in plan.actions:
            action()
        return RestoreReport(plan.kept_fresh, plan.notes, len(plan.targets), read_bytes)
    finally:
        plan.let_go()
