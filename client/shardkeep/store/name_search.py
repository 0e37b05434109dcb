"""Finding tensors of a checkpoint by the names people write."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from shardkeep.errors import NotFound
from shardkeep.format.names import join_name, plain_text, split_name
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import TensorInfo
from shardkeep.store.big_values import VALUE_PART

_SHOWN: Final = 8
"""Names in a message; the error's `extra` has all."""


class TensorNames:
    """The tensors of one checkpoint, by stored name and by plain text."""

    def __init__(self, infos: Iterable[TensorInfo], *, checkpoint_id: str) -> None:
        self._checkpoint_id = checkpoint_id
        self._by_name = {info.name: info for info in infos if not info.name.startswith(VALUE_PART + ".")}
        self._by_text: dict[str, list[str]] = defaultdict(list)
        for name in self._by_name:
            self._by_text[plain_text(name)].append(name)

    def below(self, prefix: Sequence[str]) -> list[TensorInfo]:
        """The tensors whose names begin with these parts."""
        if not prefix:
            return list(self._by_name.values())
        parts = (prefix,) if isinstance(prefix, str) else tuple(prefix)
        return [info for name, info in self._by_name.items() if split_name(name)[: len(parts)] == parts]

    def info(self, name: str) -> TensorInfo:
        """The tensor stored under exactly this name."""
        return self._by_name[name]

    def resolve(self, name: str | Sequence[str]) -> str:
        """See `Checkpoint.resolve`."""
        text = name if isinstance(name, str) else join_name(name)
        if text in self._by_name:
            return text
        same_text = self._by_text.get(text, []) if isinstance(name, str) else []
        if len(same_text) == 1:
            return same_text[0]
        raise self._not_found(text, same_text)

    def _not_found(self, text: str, same_text: list[str]) -> NotFound:
        if same_text:
            shown = ", ".join(map(repr, same_text[:_SHOWN])) + (" ..." if len(same_text) > _SHOWN else "")
            hint = f"{len(same_text)} tensors read like that; give one of the names {shown}"
        else:
            nearest = difflib.get_close_matches(text, list(self._by_name), n=3, cutoff=0.4)
            hint = f"the nearest names are {', '.join(map(repr, nearest))}" if nearest else "no name comes near"
        return NotFound(
            f"checkpoint {self._checkpoint_id} has no tensor {text!r}: {hint}",
            code=ErrorCode.UNKNOWN_TENSOR,
            status=404,
            extra={"tensors": same_text},
        )
