"""Giving the chunks that a checkpoint names their rows: where each lies, or that it is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.format.chunks import ChunkRef
from shardkeep_service.catalogue.rebuilding.listing import ListedChunk
from shardkeep_service.catalogue.rebuilding.newest import Source
from shardkeep_service.chunks.healing import quarantine_checkpoints
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.chunks.object_keys import chunk_key
from shardkeep_service.chunks.repository import rows_of
from shardkeep_service.integrity.findings import note_finding
from shardkeep_service.integrity.models import Damage, ObjectKind

AT_ONCE: Final = 1_000
_LOOKED_FOR: Final = (ChunkState.STORED.value, ChunkState.QUARANTINED.value, ChunkState.LOST.value)


@dataclass(frozen=True, slots=True)
class Namer:
    """The checkpoint whose manifests name chunks."""

    project_id: str
    run_id: str
    checkpoint_id: str


def settle_chunks(source: Source, namer: Namer, refs: Sequence[ChunkRef]) -> tuple[list[int], int]:
    """Ids of the chunks' rows, and how many of them have no object that is whole as far as is known. Idempotent."""
    ids: list[int] = []
    unusable = 0
    for start in range(0, len(refs), AT_ONCE):
        with source.context.database.write() as session:
            rows = _settle(session, source, namer, refs[start : start + AT_ONCE])
            ids.extend(row.id for row in rows)
            unusable += sum(row.state != ChunkState.STORED.value for row in rows)
    return ids, unusable


def all_listed(source: Source, project_id: str, refs: Sequence[ChunkRef]) -> bool:
    """Whether an object of the right size is there for every one of these chunks."""
    listed = source.listing.chunks_of(project_id, [ref.digest for ref in refs])
    return all(_best(listed.get(ref.digest, []), ref) is not None for ref in refs)


def mend_known_chunks(source: Source, project_id: str) -> None:
    """Looks whether the chunks that the database knew are still where it says: after its backup they may have been
    collected, or brought again under another key. Those that are nowhere are lost, and the checkpoints harmed; those
    that were damaged or lost and were brought again are found.
    """
    lost: list[int] = []
    for rows in _pages(source, project_id):
        looked_for = [row for row in rows if not _is_where_it_says(source, row)]
        if not looked_for:
            continue
        listed = source.listing.chunks_of(project_id, [row.digest for row in looked_for])
        with source.context.database.write() as session:
            for row in looked_for:
                fresh = session.get_one(Chunk, row.id)
                if not _find_again(session, source, fresh, listed.get(row.digest, [])):
                    lost.append(row.id)
    if lost:
        source.report.quarantined.extend(quarantine_checkpoints(source.context, project_id, lost))


def _is_where_it_says(source: Source, row: Chunk) -> bool:
    return row.state == ChunkState.STORED.value and source.listing.has_chunk(row.object_key, row.size_bytes)


def _find_again(session: Session, source: Source, row: Chunk, listed: Sequence[ListedChunk]) -> bool:
    """False for one that was stored and is nowhere any more."""
    best = _best(listed, ChunkRef(row.digest, row.size_bytes, int(row.crc64, 16)))
    if row.state != ChunkState.STORED.value and (best is None or best.key == row.object_key):
        return True  # as unusable as it was
    if _repoint(row, best, source.context.database.now(session)):
        return True
    _note_lost(session, source, row)
    return False


def _settle(session: Session, source: Source, namer: Namer, refs: Sequence[ChunkRef]) -> list[Chunk]:
    now = source.context.database.now(session)
    digests = [ref.digest for ref in refs]
    known = rows_of(session, namer.project_id, digests)
    listed = source.listing.chunks_of(namer.project_id, digests)
    for ref in refs:
        best = _best(listed.get(ref.digest, []), ref)
        row = known.get(ref.digest)
        if row is None:
            known[ref.digest] = _new_row(session, namer, ref, best, now)
            source.report.chunks += best is not None
        else:
            _mend(row, namer, ref, listed.get(ref.digest, []), best, now)
    session.flush()
    rows = [known[ref.digest] for ref in refs]
    for row in rows:
        if row.state == ChunkState.LOST.value:
            _note_lost(session, source, row)
    return rows


def _new_row(session: Session, namer: Namer, ref: ChunkRef, best: ListedChunk | None, now: int) -> Chunk:
    origin = namer.checkpoint_id if best is None else best.checkpoint_id
    # Uploads count from 1: nothing ever lies under the key of a lost chunk.
    nowhere = chunk_key(project_id=namer.project_id, checkpoint_id=origin, digest=ref.digest, upload=0)
    row = Chunk(
        project_id=namer.project_id, digest=ref.digest, size_bytes=ref.size_bytes, crc64=f"{ref.crc64:016x}",
        object_key=nowhere if best is None else best.key,
        state=(ChunkState.LOST if best is None else ChunkState.STORED).value,
        verification=Verification.DECLARED.value, origin_run_id=namer.run_id, origin_checkpoint_id=origin,
        claimed_at=now, stored_at=now, verified_at=None, uploads=0 if best is None else best.upload,
        suspected_at=None,
    )  # fmt: skip
    session.add(row)
    return row


def _mend(
    row: Chunk, namer: Namer, ref: ChunkRef, listed: Sequence[ListedChunk], best: ListedChunk | None, now: int
) -> None:
    """A row that exists: its object may be elsewhere, gone, or condemned though it is needed."""
    if row.origin_checkpoint_id == namer.checkpoint_id:
        row.origin_run_id = namer.run_id
    is_there = any(chunk.key == row.object_key and chunk.size_bytes == ref.size_bytes for chunk in listed)
    is_damaged = row.state == ChunkState.QUARANTINED.value
    if is_there and (row.state == ChunkState.STORED.value or (is_damaged and best and best.key == row.object_key)):
        row.claimed_at = now
        return
    _repoint(row, best, now)
    row.size_bytes, row.crc64 = ref.size_bytes, f"{ref.crc64:016x}"


def _repoint(row: Chunk, best: ListedChunk | None, now: int) -> bool:
    """Whether the chunk is stored somewhere; its row says so. Elsewhere than before it is declared until a scrub."""
    if best is None:
        row.state = ChunkState.LOST.value
        return False
    if row.object_key != best.key or row.state != ChunkState.CONDEMNED.value:
        row.verification, row.verified_at = Verification.DECLARED.value, None
    row.object_key, row.uploads = best.key, max(row.uploads, best.upload)
    row.origin_checkpoint_id = best.checkpoint_id
    row.state, row.claimed_at, row.suspected_at = ChunkState.STORED.value, now, None
    return True


def _best(listed: Sequence[ListedChunk], ref: ChunkRef) -> ListedChunk | None:
    """The last upload that has the right size."""
    return next((chunk for chunk in listed if chunk.size_bytes == ref.size_bytes), None)


def _note_lost(session: Session, source: Source, row: Chunk) -> None:
    row.state = ChunkState.LOST.value
    source.report.lost_chunks += 1
    note_finding(
        session,
        project_id=row.project_id,
        checkpoint_id=row.origin_checkpoint_id,
        kind=ObjectKind.CHUNK,
        damage=Damage.LOST,
        object_key=row.object_key,
        digest=row.digest,
        detail=f"no object of {row.size_bytes} bytes is stored of chunk {row.digest}",
    )


def _pages(source: Source, project_id: str) -> Iterator[Sequence[Chunk]]:
    after = 0
    while True:
        query = select(Chunk).where(Chunk.project_id == project_id, Chunk.id > after).order_by(Chunk.id).limit(AT_ONCE)
        with source.context.database.read() as session:
            rows = session.scalars(query).all()
        if not rows:
            return
        after = rows[-1].id
        yield [row for row in rows if row.state in _LOOKED_FOR]
