"""The shares of captured tensors: by placement where a mesh tells, else agreed (see `shardkeep.store.owners`).

The state items every rank must have registered take part in the agreement, so that none is lost silently.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from shardkeep.errors import StateError
from shardkeep.format.names import join_name
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.messages import InventoryTensor
from shardkeep.pytorch.captured import CapturedTensor, Placed
from shardkeep.store.owners import Inventories, Owners, Share, is_agreed_at

ITEM: Final = "@item"
"""First part of the names under which ranks post which state items they registered."""


def share_of_placed(name: str, placed: Placed) -> Share:
    """The share of a tensor whose replicas are known from its placement: owners spread by a stable hash of the name."""
    return Share(placed.position, placed.count, zlib.crc32(name.encode()) % placed.count)


class Layouts:
    """The shares of one rank's tensors during one attempt, and the items every rank must have registered."""

    def __init__(self, inventories: Inventories, *, world_size: int) -> None:
        self._owners = Owners(inventories, world_size=world_size)
        self._world_size = world_size
        self._lonely: str | None = None

    def agree(self, save: int, tensors: Iterable[CapturedTensor], items: Sequence[str]) -> None:
        """Post this rank's inventory if it is due at this save, and wait for the others'.

        `items` are the names that every rank must register. StateError names one that some ranks did not.
        """
        if self._world_size == 1:
            return
        if is_agreed_at(save):
            registered = [_item_entry(name) for name in items]
            self._owners.agree(save, [_entry(t) for t in tensors if is_shared_by_inventory(t)] + registered)
            self._lonely = self._lonely_item(registered)
        if self._lonely is not None:
            raise StateError(self._lonely)

    def take_part_without_state(self, save: int) -> None:
        """Post an empty inventory if one is due, so that a rank that failed keeps no other waiting."""
        self._owners.agree(save, [])

    def share(self, tensor: CapturedTensor) -> Share:
        """The share of a tensor of this rank."""
        if isinstance(tensor.placement, Placed):
            return share_of_placed(tensor.name, tensor.placement)
        if tensor.kind is SliceKind.BUFFER:
            return Share()
        return self._owners.share(_entry(tensor))

    def _lonely_item(self, registered: Sequence[InventoryTensor]) -> str | None:
        for entry in registered:
            holders = self._owners.share(entry).holders
            if holders < self._world_size:
                return (
                    f"the state item {entry.name.removeprefix(ITEM + '.')!r} is registered on {holders} of "
                    f"{self._world_size} ranks: give it to the Checkpointer on every rank, or it could not be resumed"
                )
        return None


def is_shared_by_inventory(tensor: CapturedTensor) -> bool:
    """Whether a tensor takes part in the inventory: plain ones, without buffers, which every holder stores."""
    return not isinstance(tensor.placement, Placed) and tensor.kind is not SliceKind.BUFFER


def _entry(tensor: CapturedTensor) -> InventoryTensor:
    return InventoryTensor(name=tensor.name, dtype=tensor.dtype, shape=list(tensor.shape), kind=int(tensor.kind))


def _item_entry(name: str) -> InventoryTensor:
    return InventoryTensor(name=join_name((ITEM, name)), dtype="uint8", shape=[0], kind=int(SliceKind.VALUE))
