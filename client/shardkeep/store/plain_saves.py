"""Saving a plain state: who stores which array, and the values."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from shardkeep.format.dtypes import dtype_named
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.protocol.messages import InventoryTensor
from shardkeep.store.attempt import Attempt
from shardkeep.store.extensions import Leaf, leaf_adapters, loaded_extension
from shardkeep.store.metrics import plain_metrics
from shardkeep.store.owners import Owners, Role, Share
from shardkeep.store.save_handle import SaveHandle
from shardkeep.store.save_writer import SaveWriter
from shardkeep.store.state_tree import TensorLeaf, ValueLeaf, walk


@dataclass(frozen=True, slots=True)
class _NamedLeaf:
    name: str
    leaf: Leaf


class PlainSaver:
    """Saves plain states in one attempt. Used by one thread."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self._owners = Owners(attempt, world_size=attempt.world_size)

    def save(self, step: int, state: Mapping[str, Any], metrics: Mapping[str, Any]) -> SaveHandle:
        """Stage the state and let the rest go on."""
        numbers = plain_metrics(metrics)
        leaves = list(walk(state, leaf_adapters()))
        tensors = [
            _NamedLeaf(leaf.name, leaf.adapter.leaf(leaf.array)) for leaf in leaves if isinstance(leaf, TensorLeaf)
        ]
        values = [leaf for leaf in leaves if isinstance(leaf, ValueLeaf)]
        save = self.attempt.saves
        self._owners.agree(save, [_entry(item) for item in tensors if item.leaf.replica is None])
        roles = [self._share(item).role(save) for item in tensors]
        with self.attempt.start_save(step, expected_bytes=_stored_bytes(tensors, roles)) as writer:
            for item, role in zip(tensors, roles, strict=True):
                _stage(writer, item, role)
            records = [_value_record(writer, leaf) for leaf in values]
            return writer.finish(records, numbers, _environment())

    def _share(self, item: _NamedLeaf) -> Share:
        if item.leaf.replica is None:
            return self._owners.share(_entry(item))
        position, holders = item.leaf.replica
        return Share(position, holders)


def _entry(item: _NamedLeaf) -> InventoryTensor:
    leaf = item.leaf
    return InventoryTensor(name=item.name, dtype=leaf.dtype, shape=list(leaf.shape), kind=SliceKind.TENSOR)


def _stored_bytes(tensors: Sequence[_NamedLeaf], roles: Sequence[Role]) -> int:
    return sum(
        prod(piece.region.sizes) * dtype_named(item.leaf.dtype).item_bytes
        for item, role in zip(tensors, roles, strict=True)
        if role is Role.STORES
        for piece in item.leaf.pieces
    )


def _stage(writer: SaveWriter, item: _NamedLeaf, role: Role) -> None:
    leaf = item.leaf
    if not leaf.pieces or role is Role.RESTS:
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
            witness=role is Role.WITNESSES,
            fill=piece.fill,
        )


def _nothing(start: int, out: memoryview) -> None:
    """An empty region has no bytes."""


def _value_record(writer: SaveWriter, leaf: ValueLeaf) -> ValueRecord:
    extension = loaded_extension()
    value, per_rank = extension.unwrap_value(leaf.value) if extension is not None else (leaf.value, False)
    return writer.stage_value(leaf.name, value, per_rank=per_rank)


def _environment() -> dict[str, str]:
    from shardkeep import __version__

    return {"shardkeep": __version__, "python": platform.python_version(), "numpy": np.__version__}
