"""All random generators of one rank: captured, compared, restored, or reseeded for a rank that has no saved state.

The states are plain data and per-rank values: one rank's are never another's.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from shardkeep.errors import StateError
from shardkeep.pytorch.random_sources import (
    Generator,
    RandomSource,
    cuda_device_count,
    cuda_source,
    mps_source,
    numpy_global_source,
    numpy_source,
    python_source,
    torch_source,
)

RNG_PATH: Final = "@rng"
"""First part of the path of every generator's state among a rank's values; the second is the generator's kind."""
CUDA: Final = "cuda"


class RandomStates:
    """The global generators (python, numpy, torch, every CUDA device, MPS) and those given as state items."""

    def __init__(self, items: Mapping[str, Generator], *, include_global: bool = True) -> None:
        given = [_source_of_item(name, generator) for name, generator in items.items()]
        everywhere = _global_sources() if include_global else []
        self._sources = {source.kind: source for source in everywhere + given}

    def capture(self) -> dict[str, object]:
        """Kind -> plain state, for the generators that exist here."""
        states = {kind: source.capture() for kind, source in self._sources.items()}
        return {kind: state for kind, state in states.items() if state is not None}

    def differences(self, saved: Mapping[str, object]) -> list[str]:
        """Why restoring `saved` here would not bring every generator back, each in words; empty if it would."""
        here = self.capture()
        found = [f"random generator {kind!r} exists here and was not saved" for kind in here if kind not in saved]
        for kind, state in saved.items():
            if kind == CUDA:
                found += _device_differences(state)
            elif kind not in here:
                found.append(f"random generator {kind!r} was saved and does not exist here")
            elif _algorithm(state) != _algorithm(here[kind]):
                found.append(
                    f"random generator {kind!r} was saved as {_algorithm(state)} and is {_algorithm(here[kind])} here"
                )
        return found

    def restore(self, saved: Mapping[str, object]) -> None:
        """Put back every saved state whose generator exists here; StateError names a state that does not fit.

        States listed by `differences` as of another algorithm are left out.
        """
        here = self.capture()
        for kind, state in saved.items():
            if kind != CUDA and (kind not in here or _algorithm(state) != _algorithm(here[kind])):
                continue
            try:
                self._restore_one(kind, state)
            except (ValueError, TypeError, KeyError, RuntimeError) as error:
                raise StateError(f"the saved state of random generator {kind!r} does not fit: {error}") from error

    def reseed(self, *, seed: int, step: int, rank: int) -> None:
        """Start a stream of its own for each (seed, step, rank, kind); see `stream_seed`."""
        for kind, source in self._sources.items():
            source.reseed(stream_seed(seed=seed, step=step, rank=rank, kind=kind))

    def _restore_one(self, kind: str, state: Any) -> None:
        source = self._sources.get(kind)
        if source is not None:
            source.restore(state)


def stream_seed(*, seed: int, step: int, rank: int, kind: str) -> bytes:
    """32 bytes: BLAKE2b-256 of the text `shardkeep rng 1/<seed>/<step>/<rank>/<kind>`; distinct for distinct ranks."""
    text = f"shardkeep rng 1/{seed}/{step}/{rank}/{kind}"
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def _global_sources() -> list[RandomSource]:
    return [
        python_source("python", random._inst),  # noqa: SLF001  # the module's own generator
        numpy_global_source("numpy"),
        torch_source("torch", torch.default_generator),
        cuda_source(CUDA),
        mps_source("mps"),
    ]


def _source_of_item(name: str, generator: Generator) -> RandomSource:
    kind = f"item.{name}"
    if isinstance(generator, torch.Generator):
        return torch_source(kind, generator)
    if isinstance(generator, np.random.Generator):
        return numpy_source(kind, generator)
    return python_source(kind, generator)


def _algorithm(state: object) -> str:
    """What must be equal for a state to fit a generator, in words."""
    if isinstance(state, Mapping):
        return str(state.get("bit_generator", f"version {state.get('version')}"))
    return f"{len(state)} bytes" if isinstance(state, bytes) else type(state).__name__


def _device_differences(state: object) -> list[str]:
    saved, present = len(state) if isinstance(state, Sequence) else 0, cuda_device_count()
    if present == saved:
        return []
    return [f"generators of {saved} CUDA device(s) were saved and {present} are visible here"]
