"""State items sorted by how they are kept: training state, random generators, data positions."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from shardkeep.format.names import join_name
from shardkeep.format.values import encode_value
from shardkeep.pytorch.captured import CapturedValue
from shardkeep.pytorch.items import is_stateful
from shardkeep.pytorch.loader import CountingLoader
from shardkeep.pytorch.marks import PerRank
from shardkeep.pytorch.random_sources import Generator
from shardkeep.pytorch.sampler import ResumableSampler

_LOGGER: Final = logging.getLogger("shardkeep")


@dataclass(slots=True)
class Items:
    """The state items of one keeper, by name."""

    state: dict[str, object] = field(default_factory=dict)
    generators: dict[str, Generator] = field(default_factory=dict)
    samplers: dict[str, ResumableSampler] = field(default_factory=dict)
    positions: list[str] = field(default_factory=list)
    """Items that are a position in a data stream."""
    valued: list[str] = field(default_factory=list)
    """Items whose values every rank must have: all but modules, optimizers, their schedules, and tensors."""


def sort_items(given: Mapping[str, object]) -> Items:
    """Each item to where it belongs."""
    items = Items()
    for name, item in given.items():
        if isinstance(item, random.Random | np.random.Generator | torch.Generator):
            items.generators[name] = item
            continue
        kept = item.resumable if isinstance(item, CountingLoader) else item
        if isinstance(kept, ResumableSampler):
            items.samplers[name] = kept
        elif isinstance(kept, DataLoader) and is_stateful(kept):
            kept = PerRank(kept)  # StatefulDataLoader and its like: one opaque state for each rank
        items.state[name] = kept
        if is_position(item):
            items.positions.append(name)
        if not isinstance(kept, nn.Module | Optimizer | LRScheduler | torch.Tensor):
            items.valued.append(name)
    return items


def is_position(item: object) -> bool:
    """Whether an item is a position in a data stream: it has a state, and can be iterated as no module can."""
    held = item.value if isinstance(item, PerRank) else item
    return is_stateful(held) and hasattr(held, "__iter__") and not isinstance(held, nn.Module | Optimizer)


def items_of_every_rank(values: Mapping[str, Iterable[CapturedValue]], items: Items) -> list[str]:
    """The items all ranks must have registered: data positions, and those with a value that is not marked per rank."""
    return [
        name
        for name in items.valued
        if name in items.positions or any(not value.per_rank for value in values.get(name, ()))
    ]


class PositionWatch:
    """Warns when a data position does not move between two saves at different steps: it is probably stuck."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, bytes]] = {}

    def check(self, step: int, values: Mapping[str, Iterable[CapturedValue]], positions: Iterable[str]) -> list[str]:
        """The positions that are byte-equal to those of the save before, at another step; each is logged."""
        stuck = []
        for name in positions:
            digest = _digest(values.get(name, ()))
            before = self._seen.get(name)
            self._seen[name] = (step, digest)
            if before is not None and before[0] != step and before[1] == digest:
                stuck.append(name)
                _LOGGER.warning(
                    "the data position %r is the same at step %d as at step %d: either no batch was read, or its state "
                    "no longer follows the loop, and a resume would repeat data",
                    name,
                    step,
                    before[0],
                )
        return stuck


def _digest(values: Iterable[CapturedValue]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        path = join_name(value.path)
        digest.update(path.encode() + b"\0" + encode_value(value.value, path=path))
    return digest.digest()
