"""Known contents: each element of each tensor follows from its name and index, exactly in the tensor's dtype."""

from __future__ import annotations

import math
import zlib

import torch

_EXACT = {torch.bfloat16: 251, torch.float16: 251, torch.uint8: 251, torch.bool: 2, torch.float8_e4m3fn: 13}
"""How many numbers, from 0 on, a small dtype takes exactly."""


def content(name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A ramp that starts at a number of the name's own; small dtypes wrap around at a prime."""
    start = zlib.crc32(name.encode()) % 1_000_003
    ramp = torch.arange(start, start + math.prod(shape), dtype=torch.int64).reshape(shape)
    return (ramp % _EXACT[dtype] if dtype in _EXACT else ramp).to(dtype)


def difference(found: torch.Tensor, expected: torch.Tensor) -> str:
    """What is wrong with a tensor, in words; empty if nothing is."""
    if tuple(found.shape) != tuple(expected.shape):
        return f"shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    if found.dtype != expected.dtype:
        return f"dtype {found.dtype} instead of {expected.dtype}"
    wrong = (found.double() != expected.double()).flatten().nonzero().flatten().tolist()
    return f"{len(wrong)} elements differ, first at flat index {wrong[0]}" if wrong else ""
