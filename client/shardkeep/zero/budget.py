"""How a budget is divided among gathered units, buckets of gradients and tiles. Pure.

Two units are whole at once: the one in use and the next. Of gradients one bucket fills, one is on the wire, which on
more ranks than one is there twice, and one waits to be used again. Tiles get the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from shardkeep.errors import ConfigurationError
from shardkeep.zero.layout import ALIGNMENT, Bucket, LayoutKind, ParameterSpec

IN_FLIGHT: Final = 1
"""Reductions under way at once, under a budget."""

_UNITS: Final = 2
_LEAST_TILE_ELEMENTS: Final = 256
"""With `_TILE_ITEM_BYTES`, a page."""
_MOST_TILE_ELEMENTS: Final = 4 << 20
_TILE_ITEM_BYTES: Final = 16
"""Master, gradient and two tensors of state. An optimizer with more has fewer sets of buffers."""
_SETS: Final = 3


@dataclass(frozen=True, slots=True)
class Division:
    """What parts of the budget are for. `tile_bytes`: all sets of buffers together."""

    gathered_bytes: int
    gradient_bytes: int
    tile_bytes: int

    @property
    def tile_elements(self) -> int:
        """Elements of a tile, for which all sets fit."""
        fitting = self.tile_bytes // (_SETS * _TILE_ITEM_BYTES) // ALIGNMENT * ALIGNMENT
        return min(_MOST_TILE_ELEMENTS, max(_LEAST_TILE_ELEMENTS, fitting))


@dataclass(frozen=True, slots=True)
class Budget:
    """The bytes there are, and what decides how much is needed.

    `gathers`: whether units are gathered (stage 3); run 0 is of parameters that stay whole. `wire_bytes`: of an
    element of a gradient on the wire; None: as of its parameter.
    """

    size_bytes: int
    world_size: int
    kind: LayoutKind
    gathers: bool
    wire_bytes: int | None

    def bucket_bytes(self, wanted: int, specs: Sequence[ParameterSpec]) -> int:
        """The size of buckets: as wanted, if half of what units leave is enough for them."""
        gathered = self._gathered((spec.run, spec.size * spec.item_bytes) for spec in specs)
        largest = max((spec.size * self._wire_bytes(spec.item_bytes) for spec in specs if spec.trainable), default=0)
        left = self.size_bytes - gathered - self._least_tiles(specs)
        self._check(self.size_bytes - left + self._gradient_buffers * largest)
        scale = max((self._wire_bytes(spec.item_bytes) / spec.item_bytes for spec in specs), default=1)
        return max(1, min(wanted, int(left / scale) // (2 * self._gradient_buffers)))

    def divide(self, buckets: Sequence[Bucket], specs: Sequence[ParameterSpec]) -> Division:
        """What is for what; ConfigurationError, with the bytes it takes, if not everything has enough."""
        item_bytes = {bucket.index: specs[bucket.parameters[0]].item_bytes for bucket in buckets}
        gathered = self._gathered((bucket.run, bucket.size * item_bytes[bucket.index]) for bucket in buckets)
        sent = [bucket.size * self._wire_bytes(item_bytes[bucket.index]) for bucket in buckets if bucket.trainable]
        gradients = self._gradient_buffers * max(sent, default=0)
        self._check(gathered + gradients + self._least_tiles(specs))
        return Division(gathered, gradients, self.size_bytes - gathered - gradients)

    @property
    def _gradient_buffers(self) -> int:
        return 2 + (IN_FLIGHT if self.world_size == 1 else 2 * IN_FLIGHT)

    def _wire_bytes(self, item_bytes: int) -> int:
        return self.wire_bytes or item_bytes

    def _gathered(self, sizes: Iterable[tuple[int, int]]) -> int:
        units: dict[int, int] = {}
        for run, size in sizes:
            if run and self.gathers:
                units[run] = units.get(run, 0) + size
        return _UNITS * max(units.values(), default=0)

    def _least_tiles(self, specs: Sequence[ParameterSpec]) -> int:
        """With a whole layout a tile is at least the largest parameter."""
        largest = max((spec.size for spec in specs if spec.trainable), default=0) if self.kind == "whole" else 0
        return max(_SETS * _TILE_ITEM_BYTES * _LEAST_TILE_ELEMENTS, _TILE_ITEM_BYTES * largest)

    def _check(self, needed: int) -> None:
        if needed > self.size_bytes:
            padding = self.world_size * ALIGNMENT * 8 * (_UNITS + self._gradient_buffers)
            raise ConfigurationError(
                f"budget_bytes={self.size_bytes} does not hold {'two of the largest module, ' if self.gathers else ''}"
                f"{self._gradient_buffers} of the largest parameter's gradient and the smallest tiles: give at least"
                f" {needed + padding}, or divide the model into smaller modules"
            )
