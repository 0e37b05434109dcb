"""The text the demo trains on: the Python standard library's own sources, which are on every machine."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

CONTEXT_BYTES = 64


def read_corpus(limit_bytes: int) -> bytes:
    """The first `limit_bytes` of the standard library's modules, in the order of their names."""
    library = Path(sysconfig.get_paths()["stdlib"])
    text = bytearray()
    for module in sorted(library.glob("*.py")):
        text += module.read_bytes()
        if len(text) >= limit_bytes:
            break
    return bytes(text[:limit_bytes])


class Windows(Dataset[tuple[int, Tensor]]):
    """Windows of `CONTEXT_BYTES` + 1 bytes; an item is its own index and the bytes as int64."""

    def __init__(self, text: bytes, *, count: int) -> None:
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._count = count
        self._stride = (len(text) - CONTEXT_BYTES - 1) // count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        start = index * self._stride
        return index, self._bytes[start : start + CONTEXT_BYTES + 1].long()
