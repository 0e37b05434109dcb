"""Who stores a tensor that several ranks hold: owners agreed through the inventories of an attempt.

Inventories are posted at saves 0, 1, 2, 4, 8, ... of an attempt, so that all ranks post alike whatever each of them
finds: optimizer state appears after the first step, on some ranks (experts, stages) later than on others. Between two
agreements a tensor that has no agreed owner yet is stored by each rank that holds it, which is right and costs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from shardkeep.protocol.messages import InventoryAnswer, InventoryTensor, PostInventory

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


class Inventories(Protocol):
    """What an `Attempt` offers: post an inventory, wait until every rank has, and get the owners."""

    def inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        """See `shardkeep.store.attempt.Attempt.inventory`."""
        ...


class Owners:
    """The agreed shares of one rank's plain tensors during one attempt."""

    def __init__(self, inventories: Inventories, *, world_size: int) -> None:
        self._inventories = inventories
        self._world_size = world_size
        self._shares: dict[_Key, Share] = {}

    def agree(self, save: int, held: Sequence[InventoryTensor]) -> None:
        """Post what this rank holds if that is due at this save, and wait for the others."""
        if self._world_size == 1 or not is_agreed_at(save):
            return
        ordered = sorted(held, key=lambda entry: entry.name)
        answer = self._inventories.inventory(save.bit_length(), PostInventory(tensors=ordered))
        shares = [Share(*numbers) for numbers in zip(answer.position, answer.holders, answer.owner, strict=True)]
        self._shares = dict(zip(map(_key, ordered), shares, strict=True))

    def share(self, entry: InventoryTensor) -> Share:
        """The share in one tensor; a tensor without an agreed owner is its holder's own."""
        return self._shares.get(_key(entry), Share())


def is_agreed_at(save: int) -> bool:
    """Whether owners are agreed anew at this save: 0 and the powers of two."""
    return save & (save - 1) == 0


def _key(entry: InventoryTensor) -> _Key:
    return entry.name, entry.dtype, tuple(entry.shape), entry.kind
