"""The values of a checkpoint: decoded from the manifests of the ranks that have them, big ones read from chunks.

Which of them a reader gets depends on its rank and world size: see `readable_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from shardkeep.errors import FormatError
from shardkeep.format.manifest import Manifest
from shardkeep.format.names import split_name
from shardkeep.format.regions import Region
from shardkeep.format.segments import ValueRecord
from shardkeep.format.values import decode_value
from shardkeep.store.big_values import big_value_bytes
from shardkeep.store.reading import ReadRequest

ALIASES: Final = ("@aliases",)
"""Below this path lie the values that map further names of tied tensors to the stored ones."""

_Path = tuple[str, ...]


class RankValues(Protocol):
    """What one rank saved; a manifest is one."""

    @property
    def values(self) -> Sequence[ValueRecord]:
        """Its values, encoded."""
        ...


class ValuesReport(Protocol):
    """What validation found of the values."""

    @property
    def per_rank_values(self) -> Sequence[str]:
        """Joined paths of values that are one rank's own."""
        ...

    @property
    def values_of_some_ranks(self) -> Mapping[str, int]:
        """Joined paths of global values that not every rank has, with a rank that has each."""
        ...


class ReadableValues(Mapping[_Path, Any]):
    """The values of one reader by path, each read and decoded when it is first looked up.

    `withheld`: paths of values that other ranks keep for themselves.
    """

    def __init__(
        self,
        records: Mapping[str, ValueRecord],
        elsewhere: Mapping[str, int],
        *,
        withheld: frozenset[_Path],
        manifest_of: Callable[[int], RankValues],
        decode: Callable[[ValueRecord], Any],
    ) -> None:
        self.withheld = withheld
        self._records = dict(records)
        self._elsewhere = elsewhere
        self._manifest_of = manifest_of
        self._decode = decode
        self._paths = {split_name(path): path for path in (*records, *elsewhere)}
        self._decoded: dict[_Path, Any] = {}

    def __getitem__(self, path: _Path) -> Any:
        if path not in self._decoded:
            self._decoded[path] = self._decode(self.record(path))
        return self._decoded[path]

    def __iter__(self) -> Iterator[_Path]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, path: object) -> bool:
        return path in self._paths

    def record(self, path: _Path) -> ValueRecord:
        """A value as it is stored. FormatError if the rank that is to have it does not."""
        name = self._paths[path]
        if name not in self._records:
            rank = self._elsewhere[name]
            found = next((record for record in self._manifest_of(rank).values if record.path == name), None)
            if found is None:
                raise FormatError(f"rank {rank} is said to have the value {name!r}, and its manifest does not name it")
            self._records[name] = found
        return self._records[name]


def readable_values(
    manifest_of: Callable[[int], RankValues],
    report: ValuesReport | None,
    decode: Callable[[ValueRecord], Any],
    *,
    rank: int | None,
) -> ReadableValues:
    """The values that `rank` of a world of the saved size gets: its own; `rank` None means another world: global ones.

    Both get the global values that only some ranks have. Their manifests are read when one is looked up.
    """
    own = {record.path: record for record in manifest_of(rank or 0).values}
    elsewhere = {} if report is None else {p: at for p, at in report.values_of_some_ranks.items() if p not in own}
    withheld: set[str] = set()
    if rank is None:
        withheld = {path for path, record in own.items() if record.per_rank}
        withheld |= set(() if report is None else report.per_rank_values)
    return ReadableValues(
        {path: record for path, record in own.items() if path not in withheld},
        elsewhere,
        withheld=frozenset(map(split_name, withheld)),
        manifest_of=manifest_of,
        decode=decode,
    )


def stored_aliases(values: Mapping[_Path, Any]) -> dict[str, str]:
    """Each further name of a tied tensor with the stored one, over all ranks that say something of their own."""
    found: dict[str, str] = {}
    for path in values:
        if path[: len(ALIASES)] == ALIASES and isinstance(values[path], dict):
            found |= values[path]
    return found


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
        size_bytes = big_value_bytes(name)
        data = bytearray(size_bytes)
        self._read([ReadRequest(name, Region.whole((size_bytes,)), memoryview(data))])
        return data
