"""What Shardkeep writes under `__metadata__` of a safetensors file, and reads back from its own files.

Keys: `format` ("pt", which transformers asks for), `shardkeep.checkpoint`, `shardkeep.run`, `shardkeep.step`,
`shardkeep.views` (name in the file -> true dtype and shape), `shardkeep.names` (name in the file -> stored name, where
the name in the file is not its plain text), `shardkeep.aliases` (tied name -> the name in the file that holds it). The
last three are JSON and left out when empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from shardkeep.cli.safetensors_dtypes import file_form, item_bits, stored_tensor
from shardkeep.cli.safetensors_header import HeaderEntry
from shardkeep.errors import FormatError

VIEWS_KEY: Final = "shardkeep.views"
NAMES_KEY: Final = "shardkeep.names"
ALIASES_KEY: Final = "shardkeep.aliases"


@dataclass(frozen=True, slots=True)
class TrueForm:
    """The dtype and shape of a tensor that a file holds as a view."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FileNotes:
    """What a file says about its tensors beyond what safetensors can say; empty for files of others."""

    views: Mapping[str, TrueForm] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> FileNotes:
        """The notes in a file's metadata; FormatError if ours are malformed."""
        views = {name: _true_form(name, found) for name, found in _load(metadata, VIEWS_KEY).items()}
        return cls(views, _texts(metadata, NAMES_KEY), _texts(metadata, ALIASES_KEY))

    def metadata(self) -> dict[str, str]:
        """The notes as metadata; nothing for what is empty."""
        views = {name: {"dtype": form.dtype, "shape": list(form.shape)} for name, form in self.views.items()}
        notes = {VIEWS_KEY: views, NAMES_KEY: dict(self.names), ALIASES_KEY: dict(self.aliases)}
        return {key: json.dumps(found, sort_keys=True) for key, found in notes.items() if found}

    def true_form(self, entry: HeaderEntry) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape that an entry of the header stands for; FormatError if the note contradicts it."""
        form = self.views.get(entry.name)
        if form is None:
            return stored_tensor(entry.name, entry.code, entry.shape)
        written = file_form(form.dtype, form.shape)
        if (written.code, written.shape) != (entry.code, entry.shape):
            raise FormatError(
                f"tensor {entry.name!r} is {entry.code} {list(entry.shape)}, and {VIEWS_KEY} says that it is a view of "
                f"{form.dtype} {list(form.shape)}, which does not fit"
            )
        return form.dtype, form.shape


def data_bytes(code: str, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor in a file."""
    return prod(shape) * item_bits("", code) // 8


def origin_metadata(*, checkpoint_id: str, run: str, step: int) -> dict[str, str]:
    """Where the tensors come from."""
    return {
        "format": "pt",
        "shardkeep.checkpoint": checkpoint_id,
        "shardkeep.run": run,
        "shardkeep.step": str(step),
    }


def _load(metadata: Mapping[str, str], key: str) -> dict[str, Any]:
    try:
        found = json.loads(metadata.get(key, "{}"))
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"the metadata {key} is not JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise FormatError(f"the metadata {key} is not a map")
    return found


def _texts(metadata: Mapping[str, str], key: str) -> dict[str, str]:
    found = _load(metadata, key)
    if not all(isinstance(text, str) for text in found.values()):
        raise FormatError(f"the metadata {key} is not a map of texts")
    return found


def _true_form(name: str, found: object) -> TrueForm:
    if not isinstance(found, dict) or not isinstance(found.get("dtype"), str):
        raise FormatError(f"the metadata {VIEWS_KEY} gives no dtype for tensor {name!r}")
    shape = found.get("shape")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise FormatError(f"the metadata {VIEWS_KEY} gives no shape for tensor {name!r}")
    return TrueForm(found["dtype"], tuple(shape))
