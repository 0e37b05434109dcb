"""What of a plain state and of a checkpoint belongs together, and the errors for what does not. Reads no tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shardkeep.errors import DtypeMismatch, LoadError, MissingNames, ShapeMismatch, StateError
from shardkeep.format.names import join_name, plain_text
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.extensions import LeafTarget
from shardkeep.store.state_tree import Path, TensorLeaf, ValueLeaf, is_replaceable
from shardkeep.store.stored_leaves import FoundValue, StoredLeaves

_LISTED: Final = 16
"""Names shown in a message; the error's attributes have all."""


@dataclass(slots=True)
class Matching:
    """Pairs, and what is left over on each side."""

    tensors: list[tuple[TensorInfo, LeafTarget]] = field(default_factory=list)
    values: list[tuple[ValueLeaf, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[LoadError] = field(default_factory=list)
    mismatched_names: list[str] = field(default_factory=list)

    def refuse(self, allow_missing: Sequence[str], allow_unexpected: Sequence[str]) -> None:
        """Raise for names that only one side has, unless allowed, and for what does not fit."""
        missing = [name for name in self.missing if not _is_allowed(name, allow_missing)]
        unexpected = [name for name in self.unexpected if not _is_allowed(name, allow_unexpected)]
        mismatched = _shown([str(error) for error in self.mismatched], separator="; ")
        if missing or unexpected:
            raise MissingNames(
                f"nothing was loaded: in the state and not in the checkpoint {_listed(missing)}; in the checkpoint "
                f"and not in the state {_listed(unexpected)}{'; ' if mismatched else ''}{mismatched}. Allow them by "
                "allow_missing and allow_unexpected, or use strict=False",
                missing=missing,
                unexpected=unexpected,
            )
        if self.mismatched:
            raise type(self.mismatched[0])(f"nothing was loaded: {mismatched}", names=self.mismatched_names)


def match(
    stored: StoredLeaves, leaves: Sequence[TensorLeaf | ValueLeaf], state: Mapping[str, Any], *, cast: bool
) -> Matching:
    """Pair every leaf with what it is stored as, and judge shapes, dtypes and what is left over."""
    found = Matching()
    used: set[Path] = set()
    for leaf, path in zip(leaves, _sources(stored, leaves), strict=True):
        if path is None:
            found.missing.append(leaf.name)
        elif isinstance(leaf, TensorLeaf):
            _add_tensor(found, leaf, stored.tensors[path], cast=cast)
            used.add(path)
        else:
            used.update(_add_value(found, leaf, stored.value(path), state))
    found.unexpected = [join_name(path) for path in stored.below(state) if path not in used]
    return found


def _sources(stored: StoredLeaves, leaves: Sequence[TensorLeaf | ValueLeaf]) -> list[Path | None]:
    """Exact names first; then tied ones; then the only one of the same plain text, if nothing else claims it."""
    exact = [_exact(stored, leaf) for leaf in leaves]
    sources = [path or _tied(stored, leaf) for path, leaf in zip(exact, leaves, strict=True)]
    readings = [_reading(stored, leaf) if path is None else None for path, leaf in zip(sources, leaves, strict=True)]
    claims = Counter(readings) + Counter(exact)
    return [path or (near if claims[near] == 1 else None) for path, near in zip(sources, readings, strict=True)]


def _exact(stored: StoredLeaves, leaf: TensorLeaf | ValueLeaf) -> Path | None:
    is_stored = leaf.path in stored.tensors if isinstance(leaf, TensorLeaf) else stored.value(leaf.path) is not None
    return leaf.path if is_stored else None


def _tied(stored: StoredLeaves, leaf: TensorLeaf | ValueLeaf) -> Path | None:
    return stored.tied(leaf.path) if isinstance(leaf, TensorLeaf) else None


def _reading(stored: StoredLeaves, leaf: TensorLeaf | ValueLeaf) -> Path | None:
    return stored.tensor_reading(leaf.path) if isinstance(leaf, TensorLeaf) else stored.value_reading(leaf.path)


def _add_value(
    found: Matching, leaf: ValueLeaf, value: FoundValue | None, state: Mapping[str, Any]
) -> tuple[Path, ...]:
    assert value is not None  # its path was found by it
    if not is_replaceable(leaf, state):
        raise StateError(f"{plain_text(leaf.name)!r} is in a tuple, whose members cannot be replaced; use a list")
    found.values.append((leaf, value.value))
    return value.made_of


def _add_tensor(found: Matching, leaf: TensorLeaf, info: TensorInfo, *, cast: bool) -> None:
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


def _is_allowed(name: str, allowed: Iterable[str]) -> bool:
    """Whether the name, or one above it, is among the allowed ones, in stored or in plain form."""
    text = plain_text(name)
    return any(
        given in (name, text) or name.startswith(f"{given}.") or text.startswith(f"{given}.") for given in allowed
    )


def _listed(names: Sequence[str]) -> str:
    return _shown([repr(plain_text(name)) for name in names], separator=", ") or "nothing"


def _shown(texts: Sequence[str], *, separator: str) -> str:
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return separator.join(texts[:_LISTED]) + more
