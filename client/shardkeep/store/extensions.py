"""What array libraries add to plain states: how their arrays become bytes and back.

numpy is built in (`numpy_leaves`); torch is asked for through `shardkeep.pytorch.extension`, and only when the program
has imported torch itself.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from shardkeep.format.regions import Region

if TYPE_CHECKING:
    from shardkeep.store.world import World


@dataclass(frozen=True, slots=True)
class LeafPiece:
    """A part of a tensor to save: `fill(start_byte, out)` writes `out.nbytes` of its row-major bytes into `out`."""

    region: Region
    fill: Callable[[int, memoryview], None]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor found in a state.

    `replica` is (position, count) among the holders of equal pieces where the array itself knows them; None means that
    it is plain: whole here, and who else holds it is found by inventory.
    """

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[LeafPiece, ...]
    replica: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class LeafDestination:
    """A part of a live tensor to load into.

    `out` is its own memory where that is row-major and on this host, so that bytes are read straight into it; else
    None. `assign(data, dtype)` writes row-major bytes of `dtype` into it, casting where its own dtype differs.
    """

    region: Region
    out: memoryview | None
    assign: Callable[[memoryview, str], None]


@dataclass(frozen=True, slots=True)
class LeafTarget:
    """A live tensor to load into: its global shape and dtype, and the parts that are here."""

    dtype: str
    shape: tuple[int, ...]
    destinations: tuple[LeafDestination, ...]


class LeafAdapter(Protocol):
    """One array library. Stateless; called from the thread that saves or loads."""

    def accepts(self, value: object) -> bool:
        """Whether `value` is one of its arrays."""
        ...

    def leaf(self, value: object) -> Leaf:
        """What to save of an accepted value; StateError if it cannot be saved."""
        ...

    def target(self, value: object) -> LeafTarget:
        """Where to load an accepted value; StateError if it cannot be written."""
        ...

    def create(self, dtype: str, shape: tuple[int, ...]) -> tuple[object, memoryview]:
        """A new array and the row-major bytes it is made of; ConfigurationError if the library lacks the dtype."""
        ...


class Extension(Protocol):
    """What `shardkeep.pytorch.extension` is, as a module."""

    def leaf_adapters(self) -> Sequence[LeafAdapter]:
        """Adapters, asked in order before numpy's; the first one also creates the arrays that reading returns."""
        ...

    def current_world(self) -> World | None:
        """The place of this process in the initialised process group, or None."""
        ...

    def current_rank(self) -> int | None:
        """The rank of this process in the initialised process group, or None. Not collective."""
        ...

    def unwrap_value(self, value: object) -> tuple[object, bool]:
        """The value to store for a leaf that is no tensor, and whether it is per rank (`PerRank(x)` gives x, True)."""
        ...


def loaded_extension() -> Extension | None:
    """The extension for torch if the program has imported torch, else None."""
    if "torch" not in sys.modules:
        return None
    return cast("Extension", importlib.import_module("shardkeep.pytorch.extension"))


def leaf_adapters() -> tuple[LeafAdapter, ...]:
    """All adapters that apply now, in the order to ask them."""
    from shardkeep.store.numpy_leaves import NumpyLeaves

    extension = loaded_extension()
    return (*(extension.leaf_adapters() if extension is not None else ()), NumpyLeaves())
