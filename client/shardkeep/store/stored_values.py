"""The values of a checkpoint: decoded from one rank's manifest, big ones read from chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardkeep.errors import FormatError
from shardkeep.format.manifest import Manifest
from shardkeep.format.names import split_name
from shardkeep.format.regions import Region
from shardkeep.format.segments import ValueRecord
from shardkeep.format.values import decode_value
from shardkeep.store.name_search import VALUE_PART
from shardkeep.store.reading import ReadRequest


class StoredValues:
    """Values by rank. `manifest_of` gives a rank's manifest, `read` reads regions."""

    def __init__(self, manifest_of: Callable[[int], Manifest], read: Callable[[Sequence[ReadRequest]], None]) -> None:
        self._manifest_of = manifest_of
        self._read = read

    def of_rank(self, rank: int) -> dict[tuple[str, ...], Any]:
        """Every value of a rank, by the parts of its path."""
        return {split_name(record.path): self.decode(record) for record in self._manifest_of(rank).values}

    def decode(self, record: ValueRecord) -> Any:
        """One value."""
        return decode_value(record.encoded, fetch=self._fetch)

    def _fetch(self, name: str) -> bytearray:
        size_bytes = _size_in(name)
        if size_bytes is not None:
            return self._bytes_of(name, size_bytes)
        rank = _rank_of(name)
        tensors = self._manifest_of(rank).tensors
        try:
            shape = tensors.shapes.shape(tensors.names.index(name))
        except ValueError as exc:
            raise FormatError(
                f"a value of rank {rank} is stored as {name!r}, which its manifest does not name"
            ) from exc
        return self._bytes_of(name, shape[0])

    def _bytes_of(self, name: str, size_bytes: int) -> bytearray:
        data = bytearray(size_bytes)
        self._read([ReadRequest(name, Region.whole((size_bytes,)), memoryview(data))])
        return data


def _size_in(name: str) -> int | None:
    """The size in the name of bytes that are named by their content: `@value`, 32 digits of fingerprint, size."""
    parts = split_name(name)
    by_content = len(parts) == 3 and parts[0] == VALUE_PART and len(parts[1]) == 32 and parts[2].isdigit()
    return int(parts[2]) if by_content else None


def _rank_of(name: str) -> int:
    """The rank in the name of a big value's bytes."""
    parts = split_name(name)
    if len(parts) < 3 or parts[0] != VALUE_PART or not parts[1].isdigit():
        raise FormatError(f"a value refers to {name!r}, which is not the name of a big value")
    return int(parts[1])
