"""Saving a plain state: who stores which array, and the values."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from shardkeep.format.buffers import Buffer
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.format.values import encode_value
from shardkeep.protocol.messages import InventoryAnswer, InventoryTensor, PostInventory
from shardkeep.store.attempt import Attempt
from shardkeep.store.extensions import Leaf, leaf_adapters, loaded_extension
from shardkeep.store.save_handle import SaveHandle
from shardkeep.store.save_writer import SaveWriter
from shardkeep.store.state_tree import TensorLeaf, ValueLeaf, walk


@dataclass(frozen=True, slots=True)
class _NamedLeaf:
    name: str
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class _Role:
    """A rank's part in one tensor of which there are replicas: it stores it, compares it, or only knows it."""

    stores: bool
    witnesses: bool


class PlainSaver:
    """Saves plain states in one attempt. Used by one thread."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._layouts = 0
        self._layout_digest: bytes | None = None
        self._owners: dict[str, tuple[int, int, int]] = {}

    def save(self, step: int, state: Mapping[str, Any], metrics: Mapping[str, float]) -> SaveHandle:
        """Stage the state and let the rest go on."""
        leaves = list(walk(state, leaf_adapters()))
        tensors = [
            _NamedLeaf(leaf.name, leaf.adapter.leaf(leaf.array)) for leaf in leaves if isinstance(leaf, TensorLeaf)
        ]
        values = [leaf for leaf in leaves if isinstance(leaf, ValueLeaf)]
        self._agree_on_owners(tensors)
        roles = [self._role(item) for item in tensors]
        with self.attempt.start_save(step, expected_bytes=_stored_bytes(tensors, roles)) as writer:
            for item, role in zip(tensors, roles, strict=True):
                _stage(writer, item, role)
            records = [_value_record(writer, leaf) for leaf in values]
            return writer.finish(records, metrics, _environment())

    def _agree_on_owners(self, tensors: Sequence[_NamedLeaf]) -> None:
        """Learn who else holds the plain arrays; asked once a layout."""
        plain = sorted((item for item in tensors if item.leaf.replica is None), key=lambda item: item.name)
        if self.attempt.world_size == 1 or not plain:
            return
        message = PostInventory(tensors=[_inventory_tensor(item) for item in plain])
        digest = hashlib.sha256(message.model_dump_json().encode()).digest()
        if digest == self._layout_digest:
            return
        answer = self.attempt.inventory(self._layouts, message)
        self._layouts += 1
        self._layout_digest = digest
        self._owners = {item.name: _ownership(answer, row) for row, item in enumerate(plain)}

    def _role(self, item: _NamedLeaf) -> _Role:
        if item.leaf.replica is not None:
            position, holders = item.leaf.replica
            owner = 0
        elif self.attempt.world_size == 1:
            position, holders, owner = 0, 1, 0
        else:
            position, holders, owner = self._owners[item.name]
        return _Role(position == owner, position == witness_of(owner, holders, save=self.attempt.saves))


def witness_of(owner: int, holders: int, *, save: int) -> int | None:
    """Which replica is compared with the owner's at a save, so that all are in turn; None if there is no other."""
    return (owner + 1 + save % (holders - 1)) % holders if holders > 1 else None


def _ownership(answer: InventoryAnswer, row: int) -> tuple[int, int, int]:
    return answer.position[row], answer.holders[row], answer.owner[row]


def _inventory_tensor(item: _NamedLeaf) -> InventoryTensor:
    return InventoryTensor(name=item.name, dtype=item.leaf.dtype, shape=list(item.leaf.shape), kind=SliceKind.TENSOR)


def _stored_bytes(tensors: Sequence[_NamedLeaf], roles: Sequence[_Role]) -> int:
    return sum(
        prod(piece.region.sizes) * dtype_named(item.leaf.dtype).item_bytes
        for item, role in zip(tensors, roles, strict=True)
        if role.stores
        for piece in item.leaf.pieces
    )


def _stage(writer: SaveWriter, item: _NamedLeaf, role: _Role) -> None:
    leaf = item.leaf
    if not leaf.pieces or not (role.stores or role.witnesses):
        empty = Region((0,) * len(leaf.shape), (0,) * len(leaf.shape))
        if leaf.shape:
            writer.stage(item.name, leaf.dtype, leaf.shape, empty, SliceKind.TENSOR, fill=_nothing)
        return
    for piece in leaf.pieces:
        writer.stage(
            item.name,
            leaf.dtype,
            leaf.shape,
            piece.region,
            SliceKind.TENSOR,
            witness=not role.stores,
            fill=piece.fill,
        )


def _nothing(start: int, out: memoryview) -> None:
    """An empty region has no bytes."""


def _value_record(writer: SaveWriter, leaf: ValueLeaf) -> ValueRecord:
    extension = loaded_extension()
    value, per_rank = extension.unwrap_value(leaf.value) if extension is not None else (leaf.value, False)

    def extract(path: str, data: Buffer) -> str:
        return writer.stage_value_bytes(("state", path), data)

    return ValueRecord(leaf.name, encode_value(value, path=leaf.name, extract=extract), per_rank)


def _environment() -> dict[str, str]:
    from shardkeep import __version__

    return {"shardkeep": __version__, "python": platform.python_version(), "numpy": np.__version__}
