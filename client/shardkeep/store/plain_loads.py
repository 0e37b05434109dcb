"""Loading a checkpoint into a plain state: first every check, then every write."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep.errors import DtypeMismatch, LoadError, MissingNames, ShapeMismatch, StateError
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.names import join_name, plain_text, split_name
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.extensions import LeafDestination, LeafTarget, leaf_adapters, loaded_extension
from shardkeep.store.load_report import LoadReport
from shardkeep.store.reading import ReadRequest
from shardkeep.store.state_tree import Path, TensorLeaf, ValueLeaf, is_replaceable, walk

if TYPE_CHECKING:
    from shardkeep.store.checkpoint import Checkpoint


@dataclass(slots=True)
class _Matching:
    """What of the state and of the checkpoint belongs together, and what is left over on each side."""

    tensors: list[tuple[TensorInfo, LeafTarget]] = field(default_factory=list)
    values: list[tuple[ValueLeaf, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[LoadError] = field(default_factory=list)
    mismatched_names: list[str] = field(default_factory=list)


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
    found = _match(checkpoint, state, leaves, cast=cast, rank=rank)
    if strict:
        _refuse(found, allow_missing, allow_unexpected)
    _read_tensors(checkpoint, found.tensors, rank)
    for leaf, value in found.values:
        _replace(leaf, value)
    return LoadReport(
        missing=tuple(found.missing),
        unexpected=tuple(found.unexpected),
        mismatched=tuple(found.mismatched_names),
        loaded=tuple([info.name for info, _ in found.tensors] + [leaf.name for leaf, _ in found.values]),
    )


def _match(
    checkpoint: Checkpoint,
    state: MutableMapping[str, Any],
    leaves: list[TensorLeaf | ValueLeaf],
    *,
    cast: bool,
    rank: int,
) -> _Matching:
    tops = set(state)
    stored_tensors = {split_name(info.name): info for info in checkpoint.tensors()}
    stored_values = {path: value for path, value in checkpoint.values(rank).items() if not path[0].startswith("@")}
    found = _Matching()
    taken: set[Path] = set()
    for leaf in leaves:
        if isinstance(leaf, TensorLeaf) and leaf.path in stored_tensors:
            _match_tensor(found, leaf, stored_tensors[leaf.path], cast=cast)
        elif isinstance(leaf, ValueLeaf) and leaf.path in stored_values:
            if not is_replaceable(leaf, state):
                raise StateError(
                    f"{plain_text(leaf.name)!r} is in a tuple, whose members cannot be replaced; use a list"
                )
            found.values.append((leaf, stored_values[leaf.path]))
        else:
            found.missing.append(leaf.name)
            continue
        taken.add(leaf.path)
    stored = (*stored_tensors, *stored_values)
    found.unexpected = [join_name(path) for path in stored if path[0] in tops and path not in taken]
    return found


def _match_tensor(found: _Matching, leaf: TensorLeaf, info: TensorInfo, *, cast: bool) -> None:
    target = leaf.adapter.target(leaf.array)
    name = plain_text(leaf.name)
    if tuple(info.shape) != target.shape:
        found.mismatched.append(
            ShapeMismatch(f"{name!r} is stored with shape {tuple(info.shape)}, and the state has shape {target.shape}")
        )
        found.mismatched_names.append(leaf.name)
    elif info.dtype != target.dtype and not cast:
        found.mismatched.append(
            DtypeMismatch(f"{name!r} is stored as {info.dtype}, and the state has {target.dtype}; cast=True converts")
        )
        found.mismatched_names.append(leaf.name)
    else:
        found.tensors.append((info, target))


def _refuse(found: _Matching, allow_missing: Sequence[str], allow_unexpected: Sequence[str]) -> None:
    missing = [name for name in found.missing if not _is_allowed(name, allow_missing)]
    unexpected = [name for name in found.unexpected if not _is_allowed(name, allow_unexpected)]
    if missing or unexpected:
        mismatched = "".join(f"; {error}" for error in found.mismatched[:8])
        raise MissingNames(
            f"nothing was loaded: in the state and not in the checkpoint {_listed(missing)}; in the checkpoint and not "
            f"in the state {_listed(unexpected)}{mismatched}. Allow them by allow_missing and "
            "allow_unexpected, or use strict=False",
            missing=missing,
            unexpected=unexpected,
        )
    if found.mismatched:
        raise type(found.mismatched[0])("nothing was loaded: " + "; ".join(map(str, found.mismatched[:8])))


def _is_allowed(name: str, allowed: Iterable[str]) -> bool:
    """Whether the name, or one above it, is among the allowed ones, in stored or in plain form."""
    return any(name == prefix or name.startswith(prefix + ".") or plain_text(name) == prefix for prefix in allowed)


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(repr(plain_text(name)) for name in names[:16]) + (
        f" and {len(names) - 16} more" if len(names) > 16 else ""
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
