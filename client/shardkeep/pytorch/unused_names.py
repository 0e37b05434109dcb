"""Which names of a checkpoint no rank has: asked through an inventory of the attempt, without a collective.

A rank does not know what the others hold (pipeline stages, experts), so a name it lacks is wrong only if all lack it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from shardkeep.errors import ShardkeepError
from shardkeep.format.names import join_name, split_name
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.messages import InventoryAnswer, InventoryTensor, PostInventory

UNUSED_LAYOUT: Final = 1 << 30
"""Number of the inventory at resume; those of saves count up from 0."""

_UNUSED: Final = "@unused"
_LOGGER: Final = logging.getLogger("shardkeep")


class Inventories(Protocol):
    """What an `Attempt` offers."""

    def post_inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        """See `shardkeep.store.attempt.Attempt.post_inventory`."""
        ...

    def inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        """See `shardkeep.store.attempt.Attempt.inventory`."""
        ...


class AskedRanks:
    """One resume's question to the other ranks. Every rank must ask, or say that it has none."""

    def __init__(self, inventories: Inventories, *, world_size: int) -> None:
        self._inventories = inventories
        self._world_size = world_size
        self._asked = False

    def of_all_ranks(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that no rank uses. Waits for the other ranks only if there are any names."""
        if self._world_size == 1 or self._asked:
            return list(names)
        self._asked = True
        entries = [
            InventoryTensor(name=name, dtype="uint8", shape=[0], kind=int(SliceKind.VALUE))
            for name in sorted({join_name((_UNUSED, *split_name(name))) for name in names})
        ]
        message = PostInventory(tensors=entries)
        if not entries:
            self._inventories.post_inventory(UNUSED_LAYOUT, message)
            return []
        answer = self._inventories.inventory(UNUSED_LAYOUT, message)
        counted = zip(entries, answer.holders, strict=True)
        everywhere = {entry.name for entry, holders in counted if holders == self._world_size}
        return [name for name in names if join_name((_UNUSED, *split_name(name))) in everywhere]

    def keep_nobody_waiting(self) -> None:
        """Answer for a rank whose resume failed before it could ask."""
        try:
            self.of_all_ranks([])
        except ShardkeepError as error:
            _LOGGER.warning("the other ranks may wait for this one to resume: %s", error)
