"""The values of a checkpoint for people to look at: read from the manifests rank by rank, shown, never loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from shardkeep.errors import FormatError
from shardkeep.format.manifest import decode_manifest_values
from shardkeep.format.segments import ValueRecord
from shardkeep.format.value_preview import ValuePreview, preview_value
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import Page, ValueInfo, ValueKind
from shardkeep_service.access.principal import Principal
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.checkpoints.models import ManifestRow
from shardkeep_service.checkpoints.reading import find_readable, is_found
from shardkeep_service.checkpoints.stored_manifests import read_manifest_body
from shardkeep_service.checkpoints.turns import Turns
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.errors import Refusal
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "values"
MANIFESTS_LIMIT: Final = 64
MANIFEST_BYTES_LIMIT: Final = 64 << 20
"""Of manifests read for one page, whichever comes first; one is always read. A page may be short, even empty, then."""

_RANDOM_PREFIX: Final = "@rng."
_LOOP: Final = "@loop"
_SAMPLER_MEMBERS: Final = ("batch_size", "dataset_length", "global_batches", "samples")
"""What the state of a ResumableSampler consists of: each is a value of its own below the item's name."""
_LOADER_MEMBERS: Final = frozenset(("_num_yielded", "_sampler_iter_yielded", "_snapshot", "_steps_since_snapshot"))
"""A dict with one of them is the state of a StatefulDataLoader."""


@dataclass(frozen=True, slots=True)
class ValueFilter:
    """What the list is narrowed to. With `rank`: what this rank keeps for itself."""

    search: str = ""
    kind: ValueKind | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class _Shares:
    """Which values are one rank's own, and where the global ones are that rank 0 does not have."""

    own: frozenset[str]
    elsewhere: Mapping[str, int]

    def owner(self, record: ValueRecord, rank: int) -> int | None:
        """The rank that a value of this rank's manifest is listed for; None for a global one."""
        return rank if record.per_rank or record.path in self.own else None

    def is_listed(self, record: ValueRecord, rank: int) -> bool:
        """Whether it is listed with this rank: a global value is with the lowest that has it."""
        return self.owner(record, rank) == rank or self.elsewhere.get(record.path, 0) == rank


def list_values(
    context: ServiceContext,
    turns: Turns,
    principal: Principal,
    checkpoint_id: str,
    wanted: ValueFilter,
    *,
    limit: int,
    cursor: str | None,
) -> Page[ValueInfo]:
    """By the rank that has them: global ones before its own, each by name.

    One manifest is in memory at a time, and a page reads only so many: with a search that finds little it may be short
    and still have a next one.
    """
    size = bounded_limit(limit)
    filters = {"checkpoint": checkpoint_id, "search": wanted.search, "kind": wanted.kind, "rank": wanted.rank}
    position = decode_cursor(cursor, _LIST, filters, (int, int, str))
    after = _Place(*position) if position else _Place(wanted.rank or 0, 0, "")
    with context.database.read() as session:
        report = find_readable(session, principal, checkpoint_id).report or {}
        rows = _rows(session, checkpoint_id, from_rank=after.rank, only=wanted.rank)
    shares = _Shares(frozenset(report.get("per_rank_values", ())), report.get("values_of_some_ranks", {}))
    with turns.turn():
        found, following = _page(context, rows, shares, wanted, after, size)
    return Page[ValueInfo](
        items=found, next_cursor=None if following is None else encode_cursor(_LIST, filters, following.as_tuple())
    )


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """Where in the list a value is: `own` is 1 for one that its rank keeps for itself."""

    rank: int
    own: int
    name: str

    def as_tuple(self) -> tuple[int, int, str]:
        """For a cursor."""
        return (self.rank, self.own, self.name)


def _rows(session: Session, checkpoint_id: str, *, from_rank: int, only: int | None) -> Sequence[ManifestRow]:
    query = select(ManifestRow).where(ManifestRow.checkpoint_id == checkpoint_id, ManifestRow.rank >= from_rank)
    if only is not None:
        query = query.where(ManifestRow.rank == only)
    # Eight bytes for each chunk of a rank: far more than all the rest of the row, and not needed.
    query = query.options(defer(ManifestRow.chunk_ids, raiseload=True))
    return session.scalars(query.order_by(ManifestRow.rank).limit(MANIFESTS_LIMIT + 1)).all()


def _page(
    context: ServiceContext,
    rows: Sequence[ManifestRow],
    shares: _Shares,
    wanted: ValueFilter,
    after: _Place,
    size: int,
) -> tuple[list[ValueInfo], _Place | None]:
    found: list[ValueInfo] = []
    last = after
    read_bytes = 0
    for number, row in enumerate(rows):
        read_bytes += row.size_bytes
        if number == MANIFESTS_LIMIT or (number and read_bytes > MANIFEST_BYTES_LIMIT):
            return found, _Place(row.rank, 0, "")
        for place, info in _values_of(context, row, shares, wanted, after):
            if len(found) == size:
                return found, last
            found.append(info)
            last = place
    return found, None


def _values_of(
    context: ServiceContext, row: ManifestRow, shares: _Shares, wanted: ValueFilter, after: _Place
) -> Iterator[tuple[_Place, ValueInfo]]:
    records, search = _read(context, row), wanted.search.casefold()
    samplers = _samplers(record.path for record in records)
    placed = sorted(
        (_Place(row.rank, int(shares.owner(record, row.rank) is not None), record.path), number)
        for number, record in enumerate(records)
        if shares.is_listed(record, row.rank)
    )
    for place, number in placed:
        if place <= after or (wanted.rank is not None and not place.own):
            continue
        record = records[number]
        if not is_found(record.path, search):
            continue
        preview = preview_value(record.encoded)
        kind = _kind(record, preview, samplers)
        if wanted.kind in (None, kind):
            owner = shares.owner(record, row.rank)
            yield (
                place,
                ValueInfo(
                    name=record.path,
                    rank=owner,
                    kind=kind,
                    text=preview.text,
                    cut=preview.cut,
                    size_bytes=len(record.encoded),
                ),
            )


def _read(context: ServiceContext, row: ManifestRow) -> tuple[ValueRecord, ...]:
    try:
        return decode_manifest_values(read_manifest_body(context.blob_store, row))
    except (FormatError, BlobMissing) as exc:
        raise Refusal(ErrorCode.CHUNK_DAMAGED, f"{exc}; choose another checkpoint") from exc


def _samplers(paths: Iterator[str]) -> frozenset[str]:
    """The names of the items that are samplers, by what they consist of."""
    members: dict[str, set[str]] = {}
    for path in paths:
        item, dot, member = path.rpartition(".")
        if dot and member in _SAMPLER_MEMBERS:
            members.setdefault(item, set()).add(member)
    return frozenset(item for item, found in members.items() if len(found) == len(_SAMPLER_MEMBERS))


def _kind(record: ValueRecord, preview: ValuePreview, samplers: frozenset[str]) -> ValueKind:
    """Judged by how the client names generators and what the states of samplers and loaders consist of."""
    if record.path.startswith(_RANDOM_PREFIX):
        return "random"
    is_position = record.path == _LOOP or record.path.rpartition(".")[0] in samplers
    if is_position or not _LOADER_MEMBERS.isdisjoint(preview.members):
        return "position"
    return "value"
