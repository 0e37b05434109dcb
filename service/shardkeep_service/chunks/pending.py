"""Pending chunks: rows of what clients were told to upload to the object store themselves.

A row is pending from the moment a target is given out until validation finds its object; nothing reads it meanwhile.
It belongs to one checkpoint, under whose prefix the object comes; every change is conditional on what was seen, since
another replica may be changing the same row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, String, bindparam, cast, literal, select, true, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from shardkeep.protocol.messages import ChunkOffer
from shardkeep_service.access.quotas import Allowances
from shardkeep_service.blob_store.blob_store import BlobInfo
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.chunks.object_keys import chunk_prefix
from shardkeep_service.chunks.places import UploadPlace
from shardkeep_service.database.base import BigInt
from shardkeep_service.database.many import among_integers
from shardkeep_service.database.row_lists import pack_rows, row_list
from shardkeep_service.runs.lines import UNFINISHED

_BATCH: Final = 1_000
_PENDING: Final = ChunkState.PENDING.value
_table: Final = Chunk.metadata.tables[Chunk.__tablename__]
"""For statements that the ORM would add columns of its own to."""
_is_pending: Final = Chunk.state.concat("") == _PENDING
"""Without the concatenation SQLite walks its index on state, which is every pending chunk."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Reserved:
    """Where one chunk is to be uploaded, and with what size and checksum (16 hexadecimal digits)."""

    object_key: str
    size_bytes: int
    crc64: str

    def fits(self, offer: ChunkOffer) -> bool:
        """Whether this is what the offer says."""
        return (self.size_bytes, self.crc64) == (offer.size, f"{offer.crc64:016x}")


def reserve(
    session: Session,
    place: UploadPlace,
    offers: Mapping[str, ChunkOffer],
    *,
    known: Collection[str],
    allowances: Allowances,
    now: int,
) -> dict[str, Reserved]:
    """Object keys for chunks that are not present, by digest; what is left out must be streamed.

    `known` are the digests among the offers that have a row. New ones get a pending row. One that the same checkpoint
    has pending keeps its key: two ranks may send the same bytes to it. One that a finished checkpoint left pending is
    taken over under a new key. Left out are those pending for another unfinished checkpoint, since a chunk has one row
    and both may commit, and those whose row is damaged, condemned or only declared by another run: streaming verifies
    them by digest.
    """
    new = [offer for digest, offer in sorted(offers.items()) if digest not in known]
    inserted = _insert(session, place, new, now) if new else set()
    allowances.add(place.project_id, sum(offer.size for offer in new if offer.digest in inserted))
    prefix = chunk_prefix(project_id=place.project_id, checkpoint_id=place.checkpoint_id)
    reserved = {
        offer.digest: Reserved(f"{prefix}{offer.digest}.1", offer.size, f"{offer.crc64:016x}")
        for offer in new
        if offer.digest in inserted
    }
    others = [digest for digest in offers if digest not in reserved]
    if others:
        _take_over(session, place, others, now)
        reserved.update(_pending_of(session, place, others))
    return reserved


def _insert(session: Session, place: UploadPlace, offers: Sequence[ChunkOffer], now: int) -> set[str]:
    """Makes the rows in one statement; gives the digests of those that did not exist."""
    rows = pack_rows((offer.digest, offer.size, f"{offer.crc64:016x}") for offer in offers)
    return set(session.scalars(_insert_statement(_dialect(session)), {"offers": rows, **_owner(place, now)}))


@cache
def _insert_statement(dialect: str) -> ReturningInsert[Any]:
    rows = row_list(dialect, "offers", (str, int, str))
    digest, size_bytes, crc64 = rows.columns
    values: dict[str, ColumnElement[Any]] = {
        "project_id": bindparam("of_project", type_=String),
        "digest": digest,
        "size_bytes": size_bytes,
        "crc64": crc64,
        "object_key": bindparam("prefix", type_=String).concat(digest).concat(".1"),
        "state": literal(_PENDING),
        "verification": literal(Verification.DECLARED.value),
        "origin_run_id": bindparam("of_run", type_=String),
        "origin_checkpoint_id": bindparam("of_checkpoint", type_=String),
        "claimed_at": bindparam("at", type_=BigInt),
        "stored_at": bindparam("at", type_=BigInt),
        "uploads": literal(1),
    }
    # WHERE: or SQLite takes the ON of ON CONFLICT for that of a join.
    selected = select(*values.values()).select_from(rows.source).where(true())
    insert = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(_table)
    statement = insert.from_select(list(values), selected, include_defaults=False).on_conflict_do_nothing()
    return statement.returning(_table.c.digest)


def _take_over(session: Session, place: UploadPlace, digests: Sequence[str], now: int) -> None:
    """Makes what finished checkpoints left pending this checkpoint's own, under new keys."""
    for batch in _batches(digests):
        query = select(Chunk.id, Chunk.state, Chunk.origin_checkpoint_id).where(
            Chunk.project_id == place.project_id, Chunk.digest.in_(batch)
        )
        left = {
            id_: origin
            for id_, state, origin in session.execute(query)
            if state == _PENDING and origin != place.checkpoint_id
        }
        finished = _finished(session, set(left.values())) if left else set()
        taken = [id_ for id_, origin in left.items() if origin in finished]
        if taken:
            statement = (
                update(Chunk)
                .where(Chunk.id.in_(taken), _is_pending, Chunk.origin_checkpoint_id.in_(finished))
                .values(
                    object_key=_next_key(bindparam("prefix", type_=String)),
                    uploads=Chunk.uploads + 1,
                    origin_run_id=bindparam("of_run"),
                    origin_checkpoint_id=bindparam("of_checkpoint"),
                    claimed_at=bindparam("at"),
                )
            )
            session.execute(statement, _owner(place, now), execution_options={"synchronize_session": False})


def _finished(session: Session, checkpoint_ids: set[str]) -> set[str]:
    """Those that will never name another chunk: committed, aborted, or gone altogether."""
    query = select(Checkpoint.id).where(Checkpoint.id.in_(checkpoint_ids), Checkpoint.state.in_(UNFINISHED))
    return checkpoint_ids - set(session.scalars(query))


def _pending_of(session: Session, place: UploadPlace, digests: Sequence[str]) -> Iterator[tuple[str, Reserved]]:
    for batch in _batches(digests):
        query = select(
            Chunk.digest, Chunk.object_key, Chunk.size_bytes, Chunk.crc64, Chunk.state, Chunk.origin_checkpoint_id
        ).where(Chunk.project_id == place.project_id, Chunk.digest.in_(batch))
        for digest, object_key, size_bytes, crc64, state, origin in session.execute(query):
            if state == _PENDING and origin == place.checkpoint_id:
                yield digest, Reserved(object_key, size_bytes, crc64)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A pending chunk whose object is at its key with the size declared. `number` is the `.n` of that key."""

    chunk_id: int
    number: int
    object: BlobInfo


def arrived_among(session: Session, checkpoint_id: str, project_id: str, listed: Sequence[BlobInfo]) -> list[Arrived]:
    """Those of the listed objects that are chunks which the checkpoint has pending."""
    found: list[Arrived] = []
    for batch in _batches(listed):
        objects = {info.key: info for info in batch}
        query = select(
            Chunk.id, Chunk.uploads, Chunk.object_key, Chunk.size_bytes, Chunk.state, Chunk.origin_checkpoint_id
        ).where(Chunk.project_id == project_id, Chunk.digest.in_({_digest_of(key) for key in objects}))
        for id_, number, object_key, size_bytes, state, origin in session.execute(query):
            info = objects.get(object_key)
            if state == _PENDING and origin == checkpoint_id and info is not None and info.size_bytes == size_bytes:
                found.append(Arrived(id_, number, info))
    return found


def promote(session: Session, checkpoint_id: str, arrived: Sequence[Arrived], *, verified: bool, now: int) -> None:
    """Makes arrived chunks stored, but for those that something else happened to meanwhile.

    `verified`: their digests were computed too.
    """
    kind = Verification.VERIFIED if verified else Verification.DECLARED
    values = {
        "state": ChunkState.STORED.value,
        "verification": kind.value,
        "stored_at": now,
        "claimed_at": now,
        "verified_at": now if verified else None,
    }
    _update(session, checkpoint_id, {chunk.chunk_id: chunk.number for chunk in arrived}, values)


def pending_uploads(session: Session, checkpoint_id: str, ids: Sequence[int]) -> dict[int, int]:
    """Of these chunks those that the checkpoint itself has pending, each with the number of its upload."""
    query = select(Chunk.id, Chunk.uploads, Chunk.state, Chunk.origin_checkpoint_id).where(among_integers(Chunk.id))
    return {
        id_: uploads
        for batch in _batches(ids)
        for id_, uploads, state, origin in session.execute(query, {"integers": batch})
        if state == _PENDING and origin == checkpoint_id
    }


def renew_keys(session: Session, checkpoint_id: str, project_id: str, missing: Mapping[int, int], *, now: int) -> None:
    """Gives pending chunks whose objects did not come, or came wrong, new keys: none is ever used again.

    `missing` is of `pending_uploads`: a chunk that somebody has given another key meanwhile keeps it.
    """
    prefix = literal(chunk_prefix(project_id=project_id, checkpoint_id=checkpoint_id))
    values = {"object_key": _next_key(prefix), "uploads": Chunk.uploads + 1, "claimed_at": now}
    _update(session, checkpoint_id, missing, values)


def _update(session: Session, checkpoint_id: str, numbers: Mapping[int, int], values: Mapping[str, Any]) -> None:
    """Changes chunks, by id, that the checkpoint still has pending with that number of their upload."""
    by_number: defaultdict[int, list[int]] = defaultdict(list)
    for id_, number in sorted(numbers.items()):
        by_number[number].append(id_)
    for number, ids in by_number.items():
        for batch in _batches(ids):
            statement = (
                update(Chunk)
                .where(
                    Chunk.id.in_(batch),
                    Chunk.uploads == number,
                    Chunk.origin_checkpoint_id.concat("") == checkpoint_id,
                    _is_pending,
                )
                .values(values)
            )
            session.execute(statement, execution_options={"synchronize_session": False})


def _next_key(prefix: ColumnElement[str]) -> ColumnElement[str]:
    return prefix.concat(Chunk.digest).concat(".").concat(cast(Chunk.uploads + 1, String))


def _owner(place: UploadPlace, now: int) -> dict[str, str | int]:
    return {
        "of_project": place.project_id,
        "of_run": place.run_id,
        "of_checkpoint": place.checkpoint_id,
        "prefix": chunk_prefix(project_id=place.project_id, checkpoint_id=place.checkpoint_id),
        "at": now,
    }


def _digest_of(object_key: str) -> str:
    return object_key.rpartition("/")[2].partition(".")[0]


def _dialect(session: Session) -> str:
    return session.get_bind().dialect.name


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    waiting = iter(items)
    while batch := list(islice(waiting, _BATCH)):
        yield batch
