"""The chunks that manifests need, as sorted arrays of ids: found by digest, and checked to be live."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, func, select, update
from sqlalchemy.orm import Session

from shardkeep.format.chunks import ChunkRef
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.database.many import among_integers, among_texts

Ids: TypeAlias = npt.NDArray[np.int64]

_AT_A_TIME: Final = 10_000
_STORED: Final = ChunkState.STORED.value
_PENDING: Final = ChunkState.PENDING.value
_CONDEMNED: Final = ChunkState.CONDEMNED.value
# Conditions on `state` stand outside WHERE: beside many ids SQLite walks its index on it, which is every chunk.
_NAMED: Final = select(
    Chunk.digest, Chunk.id, Chunk.size_bytes, Chunk.crc64, Chunk.state, Chunk.origin_checkpoint_id
).where(Chunk.project_id == bindparam("project_id"), among_texts(Chunk.digest))
_OF_IDS: Final = among_integers(Chunk.id)
_UNCONDEMNED: Final = (
    select(Chunk.id)
    .where(_OF_IDS, Chunk.state.concat("") != _CONDEMNED)  # see above
    .order_by(Chunk.digest)  # the order in which every transaction locks chunks
    .with_for_update(key_share=True)
    .cte("uncondemned")
)
_CLAIM: Final = (
    update(Chunk).where(Chunk.id.in_(select(_UNCONDEMNED.c.id))).values(claimed_at=bindparam("now")).returning(Chunk.id)
)


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Bytes of a set of chunks, and of those among them that one checkpoint brought."""

    stored_bytes: int
    new_bytes: int


def find_stored(
    session: Session, project_id: str, checkpoint_id: str, refs: Sequence[ChunkRef]
) -> tuple[Ids, list[str]]:
    """The sorted ids of the chunks, and the digests that are not stored with the size and checksum said.

    What the checkpoint itself has pending counts: validation looks whether it came.
    """
    ids: list[int] = []
    missing: list[str] = []
    for start in range(0, len(refs), _AT_A_TIME):
        batch = refs[start : start + _AT_A_TIME]
        named = {"project_id": project_id, "texts": [ref.digest for ref in batch]}
        found = {row[0]: row[1:] for row in session.connection().execute(_NAMED, named).all()}
        for ref in batch:
            id_, size_bytes, crc64, state, origin = found.get(ref.digest, (0, -1, "", "", ""))
            usable = state == _STORED or (state == _PENDING and origin == checkpoint_id)
            if usable and size_bytes == ref.size_bytes and crc64 == f"{ref.crc64:016x}":
                ids.append(id_)
            else:
                missing.append(ref.digest)
    return np.unique(np.array(ids, np.int64)), missing


def pack_ids(ids: Ids) -> bytes:
    """Sorted ids as stored with a manifest: little-endian 64-bit integers."""
    return ids.astype("<i8").tobytes()


def unpack_ids(data: bytes) -> Ids:
    """The ids of a stored manifest."""
    return np.frombuffer(data, "<i8").astype(np.int64, copy=False)


def union_ids(parts: Sequence[Ids]) -> Ids:
    """All ids, once, sorted."""
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def all_stored(session: Session, ids: Ids) -> bool:
    """Whether every one of these chunks is live: neither condemned nor quarantined nor lost nor gone."""
    query = select(func.count().filter(Chunk.state == _STORED)).where(_OF_IDS)
    stored = sum(session.execute(query, {"integers": batch}).scalar_one() for batch in _batches(ids))
    return stored == len(ids)


def not_stored(session: Session, ids: Ids) -> Ids:
    """Those of these chunks that are not live."""
    if all_stored(session, ids):
        return ids[:0]
    query = select(Chunk.id, Chunk.state).where(_OF_IDS)
    stored: list[int] = []
    for batch in _batches(ids):
        stored.extend(id_ for id_, state in session.execute(query, {"integers": batch}) if state == _STORED)
    return np.setdiff1d(ids, np.array(stored, np.int64), assume_unique=True)


def digests_of(session: Session, ids: Ids) -> dict[int, str]:
    """The digests of chunks that still have a row."""
    query = select(Chunk.id, Chunk.digest).where(_OF_IDS)
    found: dict[int, str] = {}
    for batch in _batches(ids):
        found.update(session.execute(query, {"integers": batch}).all())
    return found


def stale_claims(session: Session, ids: Ids, *, since: int) -> Ids:
    """Those of these chunks that nobody claimed since that moment."""
    query = select(Chunk.id).where(_OF_IDS, Chunk.claimed_at < since)
    stale: list[int] = []
    for batch in _batches(ids):
        stale.extend(session.scalars(query, {"integers": batch}))
    return np.array(sorted(stale), np.int64)


def claim_live(session: Session, ids: Ids, *, now: int) -> Ids:
    """Claims these chunks where they are not condemned, in the statement that finds them so; gives the others."""
    claimed: list[int] = []
    for batch in _batches(ids):
        renewed = session.connection().execute(_CLAIM, {"integers": batch, "now": now})
        claimed.extend(renewed.scalars().all())
    return np.setdiff1d(ids, np.array(claimed, np.int64), assume_unique=True)


def sizes_of(session: Session, ids: Ids, checkpoint_id: str) -> ChunkSizes:
    """The bytes of these chunks, and of those that `checkpoint_id` was the first to store."""
    own = func.sum(Chunk.size_bytes).filter(Chunk.origin_checkpoint_id == checkpoint_id)
    query = select(func.coalesce(func.sum(Chunk.size_bytes), 0), func.coalesce(own, 0)).where(_OF_IDS)
    rows = [session.execute(query, {"integers": batch}).one() for batch in _batches(ids)]
    return ChunkSizes(sum(int(stored) for stored, _ in rows), sum(int(new) for _, new in rows))


def _batches(ids: Ids) -> Iterator[list[int]]:
    for start in range(0, len(ids), _AT_A_TIME):
        yield ids[start : start + _AT_A_TIME].tolist()
