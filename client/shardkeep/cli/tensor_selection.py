"""Which tensors of a checkpoint a command is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardkeep.format.names import split_name
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.big_values import VALUE_PART

WEIGHT_KINDS = frozenset({"parameter", "frozen", "buffer"})
"""The kinds a model is made of. `tensor`, which plain states have, is left to --prefix."""


def parse_prefix(text: str | None) -> tuple[str, ...]:
    """The name parts of `model.layers` (dots inside a part escaped); none for nothing. FormatError if malformed."""
    if not text:
        return ()
    return split_name(text.removesuffix(".") if not text.endswith("\\.") else text)


def below(tensors: Iterable[TensorInfo], prefix: tuple[str, ...]) -> Iterator[TensorInfo]:
    """The tensors whose names begin with the parts `prefix`, without the bytes of big values."""
    for tensor in tensors:
        parts = split_name(tensor.name)
        if parts[: len(prefix)] == prefix and parts[0] != VALUE_PART:
            yield tensor
