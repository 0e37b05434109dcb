"""SQL on chunks. Look-ups take thousands of digests and are cut into batches that any database takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.database.many import among_integers, among_texts

_BATCH: Final = 1_000
_STORED: Final = ChunkState.STORED.value
_VERIFIED: Final = Verification.VERIFIED.value
_OFFERED: Final = select(
    Chunk.id,
    Chunk.digest,
    Chunk.size_bytes,
    Chunk.crc64,
    Chunk.state,
    Chunk.verification,
    Chunk.origin_run_id,
    Chunk.claimed_at,
).where(Chunk.project_id == bindparam("project_id"), among_texts(Chunk.digest))
"""What is known of offered digests. Conditions on `state` stand outside WHERE, see `checkpoints/chunk_ids.py`."""
_LIVE: Final = (
    select(Chunk.id)
    .where(among_integers(Chunk.id), Chunk.state.concat("") == _STORED)  # or SQLite walks the index on state
    .order_by(Chunk.digest)
    .with_for_update(key_share=True)
    .cte("live")
)
"""Locked in the order in which uploads are recorded, so that two transactions never wait for each other's chunks."""
_RENEW: Final = (
    update(Chunk).where(Chunk.id.in_(select(_LIVE.c.id))).values(claimed_at=bindparam("now")).returning(Chunk.id)
)
Item = TypeVar("Item")


def rows_of(session: Session, project_id: str, digests: Sequence[str]) -> dict[str, Chunk]:
    """The project's chunks among `digests`, in any state, by digest."""
    found: dict[str, Chunk] = {}
    for batch in _batches(digests):
        query = select(Chunk).where(Chunk.project_id == project_id, Chunk.digest.in_(batch))
        found.update((chunk.digest, chunk) for chunk in session.scalars(query))
    return found


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk lies, and whether it may be read from there."""

    object_key: str
    is_live: bool


def places_of(session: Session, project_id: str, digests: Sequence[str]) -> dict[str, ChunkPlace]:
    """Where the project's chunks among `digests` lie, by digest; what is still being uploaded lies nowhere."""
    found: dict[str, ChunkPlace] = {}
    for batch in _batches(digests):
        query = select(Chunk.digest, Chunk.object_key, Chunk.state).where(
            Chunk.project_id == project_id, Chunk.digest.in_(batch)
        )
        for digest, object_key, state in session.execute(query):
            if state != ChunkState.PENDING:
                found[digest] = ChunkPlace(object_key, state == _STORED)
    return found


def row_of(session: Session, project_id: str, digest: str) -> Chunk | None:
    """The project's chunk of that digest, in any state."""
    return session.scalars(select(Chunk).where(Chunk.project_id == project_id, Chunk.digest == digest)).one_or_none()


def rows_by_id(session: Session, ids: Iterable[int]) -> dict[int, Chunk]:
    """Chunks by id."""
    found: dict[int, Chunk] = {}
    for batch in _batches(list(ids)):
        found.update((chunk.id, chunk) for chunk in session.scalars(select(Chunk).where(Chunk.id.in_(batch))))
    return found


def claim(session: Session, ids: Iterable[int], now: int) -> None:
    """Notes that an open checkpoint is about to name these chunks, so that collection leaves them."""
    for batch in _batches(list(ids)):
        session.execute(
            update(Chunk).where(Chunk.id.in_(batch)).values(claimed_at=now),
            execution_options={"synchronize_session": False},
        )


@dataclass(frozen=True, slots=True)
class PresentChunk:
    """What a present chunk is stored with; `crc64` has 16 hexadecimal digits."""

    size_bytes: int
    crc64: str
    origin_run_id: str


@dataclass(frozen=True, slots=True)
class Offered:
    """What offered digests are: present, known in another state, or (left out) without a row."""

    present: dict[str, PresentChunk]
    known: set[str]


def claim_present(
    session: Session, *, project_id: str, run_id: str, digests: Sequence[str], now: int, fresh_since: int
) -> Offered:
    """Claims the chunks this run may reuse: what is stored and live, and either verified by digest or stored by the
    same run.

    A claim not older than `fresh_since` is left as it is: rewriting 300 rows a rank at every save costs more than
    everything else negotiation does. Collection spares what was claimed within the life of an open checkpoint and the
    age of a fresh claim together, so what is only read here cannot be condemned meanwhile. An older claim is renewed
    in the statement that finds the chunk live.
    """
    found: dict[str, PresentChunk] = {}
    seen: set[str] = set()
    for batch in _batches(digests):
        stale: dict[int, tuple[str, PresentChunk]] = {}
        rows = session.connection().execute(_OFFERED, {"project_id": project_id, "texts": list(batch)}).all()
        for id_, digest, size_bytes, crc64, state, verification, origin_run_id, claimed_at in rows:
            seen.add(digest)
            if state != _STORED or (verification != _VERIFIED and origin_run_id != run_id):
                continue
            chunk = PresentChunk(size_bytes, crc64, origin_run_id)
            if claimed_at >= fresh_since:
                found[digest] = chunk
            else:
                stale[id_] = (digest, chunk)
        if stale:
            found.update(stale[id_] for id_ in _renew(session, stale, now))
    return Offered(found, seen - found.keys())


def _renew(session: Session, ids: Iterable[int], now: int) -> Iterator[int]:
    """Renews the claims of those that are still live, in one statement, and gives their ids."""
    renewed = session.connection().execute(_RENEW, {"integers": list(ids), "now": now})
    return iter(renewed.scalars().all())


def locked_row_of(session: Session, project_id: str, digest: str) -> Chunk | None:
    """Like `row_of`, as it is now and locked until the end of the transaction."""
    query = select(Chunk).where(Chunk.project_id == project_id, Chunk.digest == digest)
    query = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    return session.scalars(query).one_or_none()


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
