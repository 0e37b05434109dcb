"""Loading a checkpoint into a plain state: first every check, then every write."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep.format.dtypes import dtype_named
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.extensions import LeafDestination, LeafTarget, leaf_adapters, loaded_extension
from shardkeep.store.load_report import LoadReport
from shardkeep.store.matching import match
from shardkeep.store.reading import ReadRequest
from shardkeep.store.state_tree import ValueLeaf, walk
from shardkeep.store.stored_leaves import StoredLeaves

if TYPE_CHECKING:
    from shardkeep.store.checkpoint import Checkpoint


def load_into_state(
    checkpoint: Checkpoint,
    state: MutableMapping[str, Any],
    *,
    strict: bool,
    cast: bool,
    allow_missing: Sequence[str],
    allow_unexpected: Sequence[str],
    rank: int,
) -> LoadReport:
    """See `Checkpoint.load_into`."""
    leaves = list(walk(state, leaf_adapters()))
    found = match(StoredLeaves(checkpoint.tensors(), checkpoint.readable_values(rank)), leaves, state, cast=cast)
    if strict:
        found.refuse(allow_missing, allow_unexpected)
    _read_tensors(checkpoint, found.tensors, rank)
    for leaf, value in found.values:
        _replace(leaf, value)
    return LoadReport(
        missing=tuple(found.missing),
        unexpected=tuple(found.unexpected),
        mismatched=tuple(found.mismatched_names),
        loaded=tuple([info.name for info, _ in found.tensors] + [leaf.name for leaf, _ in found.values]),
    )


def _read_tensors(checkpoint: Checkpoint, tensors: Sequence[tuple[TensorInfo, LeafTarget]], rank: int) -> None:
    direct: list[ReadRequest] = []
    indirect: list[tuple[TensorInfo, LeafDestination]] = []
    for info, target in tensors:
        for destination in target.destinations:
            if destination.out is not None and info.dtype == target.dtype:
                direct.append(ReadRequest(info.name, destination.region, destination.out))
            elif not destination.region.is_empty:
                indirect.append((info, destination))
    if direct:
        checkpoint.read(direct, rank=rank)
    for info, destination in indirect:
        size_bytes = destination.region.volume * dtype_named(info.dtype).item_bytes
        data = np.empty(size_bytes, np.uint8).data
        checkpoint.read([ReadRequest(info.name, destination.region, data)], rank=rank)
        destination.assign(data, info.dtype)


def _replace(leaf: ValueLeaf, value: object) -> None:
    extension = loaded_extension()
    if extension is not None and extension.unwrap_value(leaf.value)[1]:
        leaf.value.value = value  # type: ignore[attr-defined]  # PerRank holds what it wraps in `value`
        return
    leaf.replace(value)
