"""Who stores a tensor that several ranks hold whole: owners agreed through the inventories of an attempt.

Inventories are posted at saves 0, 1, 2, 4, 8, ... of an attempt, so that all ranks post alike whatever each of them
finds: optimizer state appears after the first step, on some ranks (experts, stages) later than on others. Between two
agreements a tensor that has no agreed owner yet is stored by each rank that holds it, which is right and costs more.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from shardkeep.errors import StateError
from shardkeep.format.names import join_name
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.messages import InventoryAnswer, InventoryTensor, PostInventory
from shardkeep.pytorch.captured import CapturedTensor, Placed

ITEM: Final = "@item"
"""First part of the names under which ranks post which state items they registered."""

_Key = tuple[str, str, tuple[int, ...], int]


class Role(Enum):
    """What a rank does with a tensor it holds, at one save."""

    STORES = "stores"
    WITNESSES = "witnesses"
    """Fingerprints it, to be compared with what the owner stores."""
    RESTS = "rests"


@dataclass(frozen=True, slots=True)
class Share:
    """The own rank is holder `position` of `holders`; holder `owner` stores the tensor."""

    position: int = 0
    holders: int = 1
    owner: int = 0

    def role(self, save: int) -> Role:
        """Owner, witness (another one at each save, so that every replica is compared in turn), or neither."""
        if self.position == self.owner:
            return Role.STORES
        witness = (self.owner + 1 + save % (self.holders - 1)) % self.holders
        return Role.WITNESSES if self.position == witness else Role.RESTS


def share_of_placed(name: str, placed: Placed) -> Share:
    """The share of a tensor whose replicas are known from its placement: owners spread by a stable hash of the name."""
    return Share(placed.position, placed.count, zlib.crc32(name.encode()) % placed.count)


class Inventories(Protocol):
    """What an `Attempt` offers: post an inventory, wait until every rank has, and get the owners."""

    def inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        """See `shardkeep.store.attempt.Attempt.inventory`."""
        ...


class Layouts:
    """The agreed shares of plain tensors during one attempt, and the items every rank must have registered."""

    def __init__(self, inventories: Inventories, *, world_size: int) -> None:
        self._inventories = inventories
        self._world_size = world_size
        self._shares: dict[_Key, Share] = {}
        self._lonely: str | None = None

    def agree(self, save: int, tensors: Iterable[CapturedTensor], items: Sequence[str]) -> None:
        """Post this rank's inventory if it is due at this save, and wait for the others'.

        `items` are the names that every rank must register. StateError names one that some ranks did not.
        """
        if self._world_size == 1:
            return
        if is_agreed_at(save):
            posted = [_entry(tensor) for tensor in tensors if is_shared_by_inventory(tensor)]
            self._post(save.bit_length(), posted + [_item_entry(name) for name in items])
        if self._lonely is not None:
            raise StateError(self._lonely)

    def take_part_without_state(self, save: int) -> None:
        """Post an empty inventory if one is due, so that a rank that failed keeps no other waiting."""
        if self._world_size > 1 and is_agreed_at(save):
            self._post(save.bit_length(), [])

    def share(self, tensor: CapturedTensor) -> Share:
        """The share of a tensor of this rank."""
        if isinstance(tensor.placement, Placed):
            return share_of_placed(tensor.name, tensor.placement)
        if tensor.kind is SliceKind.BUFFER:
            return Share()
        return self._shares.get(_key(_entry(tensor)), Share())

    def _post(self, layout: int, entries: Sequence[InventoryTensor]) -> None:
        ordered = sorted(entries, key=lambda entry: entry.name)
        answer = self._inventories.inventory(layout, PostInventory(tensors=ordered))
        shares = [Share(*numbers) for numbers in zip(answer.position, answer.holders, answer.owner, strict=True)]
        self._lonely = _lonely_item(ordered, shares, self._world_size)
        self._shares = dict(zip(map(_key, ordered), shares, strict=True))


def is_agreed_at(save: int) -> bool:
    """Whether owners are agreed anew at this save: 0 and the powers of two."""
    return save & (save - 1) == 0


def is_shared_by_inventory(tensor: CapturedTensor) -> bool:
    """Whether a tensor takes part in the inventory: plain ones, without buffers, which every holder stores."""
    return not isinstance(tensor.placement, Placed) and tensor.kind is not SliceKind.BUFFER


def _key(entry: InventoryTensor) -> _Key:
    return entry.name, entry.dtype, tuple(entry.shape), entry.kind


def _entry(tensor: CapturedTensor) -> InventoryTensor:
    return InventoryTensor(name=tensor.name, dtype=tensor.dtype, shape=list(tensor.shape), kind=int(tensor.kind))


def _item_entry(name: str) -> InventoryTensor:
    return InventoryTensor(name=join_name((ITEM, name)), dtype="uint8", shape=[0], kind=int(SliceKind.VALUE))


def _lonely_item(entries: Sequence[InventoryTensor], shares: Sequence[Share], world_size: int) -> str | None:
    for entry, share in zip(entries, shares, strict=True):
        if entry.kind == SliceKind.VALUE and share.holders < world_size:
            return (
                f"the state item {entry.name.removeprefix(ITEM + '.')!r} is registered on {share.holders} of "
                f"{world_size} ranks: give it to the Checkpointer on every rank, or it could not be resumed"
            )
    return None
