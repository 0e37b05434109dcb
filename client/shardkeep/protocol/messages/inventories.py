"""Inventories: what each rank holds as plain tensors, and who stores it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.scalars import Size


class InventoryTensor(Request):
    """One tensor a rank holds whole and in plain form; `names` are sorted and unique within an inventory."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    dtype: str
    shape: list[Size]
    kind: int


class PostInventory(Request):
    """PUT /v1/attempts/{attempt}/inventories/{layout}/{rank}: what this rank holds as plain tensors.

    `layout` numbers the layouts of an attempt, counted alike on all ranks. Idempotent; other content is
    `inventory_disagrees`.
    """

    tensors: list[InventoryTensor] = Field(max_length=1_000_000)


class InventoryAnswer(Answer):
    """The owners once every rank has posted; until then `complete` is false and `waiting_for` names ranks.

    The three lists run along the rank's own posted tensors. Tensor i is held by `holders[i]` ranks; this rank is the
    `position[i]`-th of them and the `owner[i]`-th stores it. At save n the one at
    `(owner + 1 + n % (holders - 1)) % holders` fingerprints it too (the witness), so every replica is compared in turn.
    Buffers are owned by each holder.
    """

    complete: bool
    waiting_for: list[int] = Field(default_factory=list)
    holders: list[int] = Field(default_factory=list)
    position: list[int] = Field(default_factory=list)
    owner: list[int] = Field(default_factory=list)
