"""The plan of a restore: every check is made while it is drawn up; only then anything is read or written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from shardkeep.errors import DtypeMismatch, LoadError, MissingNames, ShapeMismatch, StateError
from shardkeep.format.names import join_name, plain_text
from shardkeep.pytorch.captured import Piece
from shardkeep.pytorch.collector import TensorNames
from shardkeep.pytorch.flat_slices import is_in_slices, note_write
from shardkeep.pytorch.pieces import Parts, TensorLike, dtype_of, global_shape, local_of, pieces_of
from shardkeep.pytorch.stored import Stored, StoredTensor, readable
from shardkeep.pytorch.tensors import overlaps_itself, torch_dtype

_LISTED = 8


@dataclass(frozen=True, slots=True)
class Target:
    """A stored tensor and where it goes.

    `place` gives the live pieces, making new memory where it must; it is called once, when every check has passed.
    """

    stored: StoredTensor
    place: Callable[[], Sequence[Piece]]


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the caller lets pass: names (or leading parts of names), and casting."""

    missing: Sequence[str] = ()
    unexpected: Sequence[str] = ()
    cast: bool = False


class UnusedNames(Protocol):
    """Tells which stored names no rank has: pipeline stages and experts have names of their own."""

    def of_all_ranks(self, names: Sequence[str]) -> list[str]:
        """Those of `names`, which this rank does not use, that no other rank uses either."""
        ...


@dataclass(slots=True)
class RestorePlan:
    """Reads, then actions, in the order they were added; and everything that speaks against them."""

    stored: Stored
    names: TensorNames
    allowed: Allowed = field(default_factory=Allowed)
    targets: list[Target] = field(default_factory=list)
    actions: list[Callable[[], None]] = field(default_factory=list)
    kept_fresh: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    used_values: set[Parts] = field(default_factory=set)
    _offered: list[Target] = field(default_factory=list)
    _written: dict[str, list[int]] = field(default_factory=dict)
    _exact: set[str] = field(default_factory=set)
    _readings: dict[str, list[str]] = field(default_factory=dict)
    _missing: list[str] = field(default_factory=list)
    _unexpected: list[str] = field(default_factory=list)
    _shapes: dict[str, str] = field(default_factory=dict)
    _dtypes: dict[str, str] = field(default_factory=dict)
    _others: list[str] = field(default_factory=list)

    def write(self, stored: StoredTensor, live: TensorLike, name: str) -> None:
        """Read a stored tensor into live memory, checked for shape, dtype and presence of the memory."""
        self.used.add(stored.name)
        if name == stored.name or self.stored.aliases.get(name) == stored.name:
            self._exact.add(stored.name)
        else:
            self._readings.setdefault(stored.name, []).append(name)
        text = plain_text(name)
        pieces, _ = pieces_of(live, text)
        if not (isinstance(live, torch.Tensor) and is_in_slices(live)) and overlaps_itself(local_of(live)):
            raise StateError(f"{text} is an expanded view whose elements share memory, so it cannot be loaded in place")
        if tuple(stored.shape) != global_shape(live):
            self._shapes[text] = f"{text} is {tuple(stored.shape)} in the checkpoint and {global_shape(live)} here"
            return
        if stored.dtype != dtype_of(live) and not self._may_cast(stored.dtype, dtype_of(live)):
            self._dtypes[text] = f"{text} is {stored.dtype} in the checkpoint and {dtype_of(live)} here"
            return
        self._written.setdefault(stored.name, []).append(len(self.targets))
        self.targets.append(Target(stored, lambda: pieces))
        if isinstance(live, torch.Tensor):
            self.then(lambda: note_write(live))

    def read_instead(self, stored: StoredTensor, other: StoredTensor) -> None:
        """Everything that `write` reads from one stored tensor is read from another of the same shape."""
        if tuple(stored.shape) == tuple(other.shape):
            for at in self._written.get(stored.name, ()):
                self.targets[at] = Target(other, self.targets[at].place)

    def create(self, stored: StoredTensor, place: Callable[[], Sequence[Piece]]) -> None:
        """Read a stored tensor into memory that `place` makes."""
        self.used.add(stored.name)
        self.targets.append(Target(stored, place))

    def offer(self, stored: StoredTensor, place: Callable[[], Sequence[Piece]]) -> None:
        """Read a stored tensor into memory that `place` makes, unless another rank has it: then it is not ours."""
        self.used.add(stored.name)
        self._offered.append(Target(stored, place))

    def then(self, action: Callable[[], None]) -> None:
        """Run this after all reads."""
        self.actions.append(action)

    def missing(self, name: str) -> None:
        """The state has `name` and the checkpoint does not."""
        if _allows(self.allowed.missing, name):
            self.kept_fresh.append(plain_text(name))
        else:
            self._missing.append(name)

    def unexpected(self, name: str) -> None:
        """The checkpoint has `name` under a top-level name that was given, and the state does not."""
        if not _allows(self.allowed.unexpected, name):
            self._unexpected.append(name)

    def judge_rest(self, parts: Parts) -> None:
        """What the checkpoint has under `parts` and nothing of the plan uses is unexpected."""
        for name in self.stored.tensors_below(parts):
            if name not in self.used:
                self.unexpected(name)
        for path in self.stored.values_below(parts):
            if path not in self.used_values:
                self.unexpected(join_name(path))

    def impossible(self, reason: str) -> None:
        """Something else that cannot be loaded."""
        self._others.append(reason)

    def keep_fresh(self, path: Parts, why: str) -> None:
        """A value that this rank cannot get from the checkpoint keeps what it has."""
        self.kept_fresh.append(readable(path))
        self.notes.append(f"{readable(path)} keeps its fresh value: {why}")

    def check(self, unused: UnusedNames | None = None) -> None:
        """Raise what was found, names first. Nothing has been written."""
        self._ask(unused)
        self._judge_readings()
        if self._missing or self._unexpected:
            raise self._names_error()
        if self._shapes:
            raise ShapeMismatch(
                _listed("shapes differ", list(self._shapes.values())) + "; nothing was loaded", names=list(self._shapes)
            )
        if self._dtypes:
            raise DtypeMismatch(
                _listed("dtypes differ", list(self._dtypes.values()))
                + "; give cast=True to convert. Nothing was loaded",
                names=list(self._dtypes),
            )
        if self._others:
            raise LoadError(_listed("cannot be loaded", self._others) + "; nothing was loaded")

    def let_go(self) -> None:
        """Forget where things go. Who added actions knows the plan: what was loaded would else be kept in memory, or in
        a scratch file, until cycles are next collected.
        """
        self.targets.clear()
        self.actions.clear()
        self._offered.clear()

    def _ask(self, unused: UnusedNames | None) -> None:
        """Settle what depends on the other ranks."""
        lacking = self._unexpected + [target.stored.name for target in self._offered]
        nobodys = set(lacking if unused is None else unused.of_all_ranks(lacking))
        self._unexpected = [name for name in self._unexpected if name in nobodys]
        self.targets += [target for target in self._offered if target.stored.name in nobodys]

    def _judge_readings(self) -> None:
        """A stored tensor found by plain text belongs to one live name; if more claim it, only an exact one has it."""
        for stored_name, names in self._readings.items():
            if len(names) > 1 or stored_name in self._exact:
                self._missing.extend(names)

    def _may_cast(self, source: str, target: str) -> bool:
        return self.allowed.cast and torch.can_cast(torch_dtype(source), torch_dtype(target))

    def _names_error(self) -> MissingNames:
        lines = []
        if self._missing:
            lines.append(_listed("not in the checkpoint", self._named_missing()))
        if self._unexpected:
            lines.append(_listed("in the checkpoint and not here", [plain_text(name) for name in self._unexpected]))
        return MissingNames(
            "; ".join(lines) + ". Allow them by name with allow_missing or allow_unexpected; nothing was loaded",
            missing=[plain_text(name) for name in self._missing],
            unexpected=[plain_text(name) for name in self._unexpected],
        )

    def _named_missing(self) -> list[str]:
        """Nearest names only where they are shown: looking for them takes time."""
        shown = [self._with_nearest(name) for name in self._missing[:_LISTED]]
        return shown + [plain_text(name) for name in self._missing[_LISTED:]]

    def _with_nearest(self, name: str) -> str:
        near = self.stored.nearest(name)
        return plain_text(name) + (f" (nearest: {', '.join(near)})" if near else "")


def _allows(allowed: Sequence[str], name: str) -> bool:
    text = plain_text(name)
    return any(
        given in (name, text) or name.startswith(f"{given}.") or text.startswith(f"{given}.") for given in allowed
    )


def _listed(what: str, entries: list[str]) -> str:
    more = f", and {len(entries) - _LISTED} more" if len(entries) > _LISTED else ""
    return f"{what}: {', '.join(entries[:_LISTED])}{more}"
