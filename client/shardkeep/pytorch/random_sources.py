"""Random generators one by one: their states as plain data (ints, floats, byte strings), put back, or seeded anew.

Which of them a rank keeps, and for whom, is in `rng`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Generator = random.Random | np.random.Generator | torch.Generator
"""Generators a user may give as a state item."""


@dataclass(frozen=True, slots=True)
class RandomSource:
    """One generator, or one per device. None of the three draws a number; `restore` is the inverse of `capture`.

    `capture` gives None where the generator does not exist. `restore` raises ValueError, TypeError, KeyError or
    RuntimeError on a foreign state. `reseed` starts a stream that is a function of the 32 bytes only.
    """

    kind: str
    capture: Callable[[], object]
    restore: Callable[[Any], None]
    reseed: Callable[[bytes], None]


def python_source(kind: str, generator: random.Random) -> RandomSource:
    """A `random.Random`."""

    def capture() -> object:
        version, words, gauss_next = generator.getstate()
        return {"version": version, "words": np.array(words, dtype="<u4").tobytes(), "gauss_next": gauss_next}

    def restore(state: Any) -> None:
        words = tuple(np.frombuffer(state["words"], dtype="<u4").tolist())
        generator.setstate((state["version"], words, state["gauss_next"]))

    return RandomSource(kind, capture, restore, lambda seed: generator.seed(int.from_bytes(seed, "little")))


def numpy_global_source(kind: str) -> RandomSource:
    """The legacy global generator of numpy."""
    return RandomSource(
        kind,
        lambda: plain_state(np.random.get_state(legacy=False)),
        lambda state: np.random.set_state(numpy_state(state)),
        lambda seed: np.random.seed(seed_words(seed)),
    )


def numpy_source(kind: str, generator: np.random.Generator) -> RandomSource:
    """A `numpy.random.Generator` of any bit generator."""
    bits: Any = generator.bit_generator

    def restore(state: Any) -> None:
        bits.state = numpy_state(state)

    def reseed(seed: bytes) -> None:
        bits.state = type(bits)(np.random.SeedSequence(seed_words(seed))).state

    return RandomSource(kind, lambda: plain_state(bits.state), restore, reseed)


def torch_source(kind: str, generator: torch.Generator) -> RandomSource:
    """A `torch.Generator`: the CPU's default one, or a user's on any device."""

    def reseed(seed: bytes) -> None:
        generator.manual_seed(seed_integer(seed))

    def restore(state: Any) -> None:
        generator.set_state(torch_state(state))

    return RandomSource(kind, lambda: torch_bytes(generator.get_state()), restore, reseed)


def cuda_source(kind: str) -> RandomSource:
    """The default generators of all visible CUDA devices, in order of their index; absent until CUDA is in use."""

    def in_use() -> bool:
        return torch.cuda.is_available() and torch.cuda.is_initialized()

    def capture() -> object:
        if not in_use():
            return None
        return [torch_bytes(torch.cuda.get_rng_state(index)) for index in range(torch.cuda.device_count())]

    def restore(state: Any) -> None:
        for index, data in enumerate(state[: cuda_device_count()]):
            torch.cuda.set_rng_state(torch_state(data), index)

    def reseed(seed: bytes) -> None:
        for index in range(torch.cuda.device_count() if in_use() else 0):
            device_seed = hashlib.blake2b(seed + str(index).encode(), digest_size=32).digest()
            torch.cuda.default_generators[index].manual_seed(seed_integer(device_seed))

    return RandomSource(kind, capture, restore, reseed)


def mps_source(kind: str) -> RandomSource:
    """The generator of an Apple GPU; absent elsewhere."""

    def capture() -> object:
        return torch_bytes(torch.mps.get_rng_state()) if torch.backends.mps.is_available() else None

    def reseed(seed: bytes) -> None:
        if torch.backends.mps.is_available():
            torch.mps.manual_seed(seed_integer(seed))

    return RandomSource(kind, capture, lambda state: torch.mps.set_rng_state(torch_state(state)), reseed)


def cuda_device_count() -> int:
    """Visible CUDA devices; none without a driver."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def plain_state(state: object) -> object:
    """A numpy bit generator's state with its arrays as dtype and little-endian bytes."""
    if isinstance(state, Mapping):
        return {str(key): plain_state(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        little = state.dtype.newbyteorder("<")
        return {"dtype": little.str, "data": state.astype(little).tobytes()}
    return state.item() if isinstance(state, np.generic) else state


def numpy_state(state: object) -> Any:
    """The inverse of `plain_state`."""
    if not isinstance(state, Mapping):
        return state
    if set(state) == {"dtype", "data"}:
        stored = np.frombuffer(state["data"], dtype=np.dtype(state["dtype"]))
        return stored.astype(stored.dtype.newbyteorder("="))
    return {key: numpy_state(value) for key, value in state.items()}


def torch_bytes(state: torch.Tensor) -> bytes:
    """A generator's state tensor as bytes."""
    return state.cpu().numpy().tobytes()


def torch_state(data: bytes) -> torch.Tensor:
    """The inverse of `torch_bytes`."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def seed_words(seed: bytes) -> list[int]:
    """32 bytes as eight 32-bit words."""
    return [int.from_bytes(seed[start : start + 4], "little") for start in range(0, len(seed), 4)]


def seed_integer(seed: bytes) -> int:
    """The first 8 bytes as one unsigned integer."""
    return int.from_bytes(seed[:8], "little")
