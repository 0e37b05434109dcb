"""Writing a checkpoint's tensors as safetensors shards, front to back, through one buffer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardkeep.cli.export_directory import INDEX_NAME, ExportDirectory
from shardkeep.cli.export_plan import Shard, WindowPiece, plan_windows
from shardkeep.cli.output import Advance
from shardkeep.cli.safetensors_writer import SafetensorsWriter
from shardkeep.store.checkpoint import ReadRequest

WINDOW_BYTES: Final = 64 << 20
"""The buffer: what is read, in parallel, before it is written."""

Read = Callable[[Sequence[ReadRequest]], None]


@dataclass(frozen=True, slots=True)
class Export:
    """What to write."""

    shards: Sequence[Shard]
    metadata: Mapping[str, str]
    """Under `__metadata__` of every shard, beside the shard's own notes."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(shard.size_bytes for shard in self.shards)


def write_shards(export: Export, directory: ExportDirectory, read: Read, advance: Advance) -> None:
    """Write and finish every shard; nothing is published yet."""
    buffer = memoryview(bytearray(min(WINDOW_BYTES, max(1, export.size_bytes))))
    for shard in export.shards:
        metadata = {**export.metadata, **shard.notes.metadata()}
        headers = [entry.header for entry in shard.entries]
        writer = SafetensorsWriter(directory.path / shard.file_name, headers, metadata)
        directory.add(writer)
        for window in plan_windows(shard, len(buffer)):
            read([_request(piece, buffer) for piece in window.pieces])
            writer.write(buffer[: window.size_bytes])
            advance(window.size_bytes)
        writer.finish()


def _request(piece: WindowPiece, buffer: memoryview) -> ReadRequest:
    return ReadRequest(piece.tensor.name, piece.region, buffer[piece.start : piece.stop])


def write_index(export: Export, directory: ExportDirectory) -> None:
    """Write the index of all shards."""
    weight_map = {entry.header.name: shard.file_name for shard in export.shards for entry in shard.entries}
    document: dict[str, Any] = {
        "metadata": {"total_size": export.size_bytes, **export.metadata},
        "weight_map": dict(sorted(weight_map.items())),
    }
    directory.write_text(INDEX_NAME, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
