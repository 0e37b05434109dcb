"""What a set of safetensors files becomes: stored names, and an identity by which a repeated push knows itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from shardkeep.cli.output import Advance
from shardkeep.cli.safetensors_reader import FileTensor, SafetensorsFile
from shardkeep.cli.safetensors_source import TensorSource
from shardkeep.errors import FormatError
from shardkeep.format.names import check_name, join_name

_READ_BYTES: Final = 4 << 20
_LAUNCH_ID_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class ImportedTensor:
    """One tensor of a file and the name it is stored under."""

    name: str
    file: SafetensorsFile
    tensor: FileTensor

    def fill(self, start: int, out: memoryview) -> None:
        """Write the tensor's bytes from `start` on into `out`."""
        self.file.read_into(self.tensor, start, out)


def plan_import(source: TensorSource) -> list[ImportedTensor]:
    """Every tensor with its stored name: the parts of its name between dots, or what `pull` noted in the file.

    FormatError on a name that cannot be stored or that two tensors get.
    """
    found: dict[str, ImportedTensor] = {}
    for file, tensor in source.tensors():
        name = _stored_name(file, tensor.name)
        if name in found:
            raise FormatError(f"{found[name].tensor.name!r} and {tensor.name!r} would both be stored as {name!r}")
        found[name] = ImportedTensor(name, file, tensor)
    return list(found.values())


def imported_aliases(source: TensorSource) -> dict[str, str]:
    """Tied stored names and the stored name that holds their tensor, as `pull` noted them."""
    return {
        join_name(alias.split(".")): _stored_name(file, kept)
        for file in source.files
        for alias, kept in file.notes.aliases.items()
    }


def source_metadata(source: TensorSource) -> dict[str, str]:
    """The texts that the files' authors put under `__metadata__`, without those of Shardkeep."""
    return {
        key: text
        for file in source.files
        for key, text in file.metadata.items()
        if not key.startswith("shardkeep.") and key != "format"
    }


def launch_id_of(run: str, step: int, tensors: list[ImportedTensor], advance: Advance) -> str:
    """32 hexadecimal digits that are the same for the same run, step and tensors. Reads every byte once."""
    digest = blake3(json.dumps(["shardkeep push", run, step]).encode())
    buffer = memoryview(bytearray(_READ_BYTES))
    for item in sorted(tensors, key=lambda item: item.name):
        digest.update(json.dumps([item.name, item.tensor.dtype, item.tensor.shape]).encode())
        for start in range(0, item.tensor.size_bytes, _READ_BYTES):
            part = buffer[: min(_READ_BYTES, item.tensor.size_bytes - start)]
            item.fill(start, part)
            digest.update(part)
            advance(len(part))
    return digest.hexdigest()[:_LAUNCH_ID_DIGITS]


def environment_of(source: TensorSource, *, version: str) -> Mapping[str, str | int]:
    """What the checkpoint says about where it comes from."""
    found: dict[str, str | int] = {
        "tool": f"shardkeep push {version}",
        "source_files": ", ".join(file.path.name for file in source.files[:8]),
    }
    metadata = json.dumps(source_metadata(source), sort_keys=True)
    if metadata != "{}" and len(metadata) <= _METADATA_CHARACTERS:
        found["source_metadata"] = metadata
    return found


_METADATA_CHARACTERS: Final = 8192


def _stored_name(file: SafetensorsFile, name: str) -> str:
    stored = file.notes.names.get(name) or join_name(name.split("."))
    try:
        check_name(stored)
    except FormatError as exc:
        raise FormatError(f"{file.path}: tensor {name[:80]!r} cannot be stored: {exc}") from exc
    return stored
