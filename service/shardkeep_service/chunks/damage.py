"""Reported damage: the service reads the chunks again itself, and quarantines what is really damaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select, update

from shardkeep.format.chunks import ChunkHasher
from shardkeep.protocol.messages import DamageAnswer
from shardkeep_service.access.principal import Principal
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.healing import quarantine_checkpoints
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.chunks.places import readable_checkpoint
from shardkeep_service.service_context import ServiceContext

AT_ONCE_BYTES: Final = 128 << 20
"""Read within the request; the rest is marked and read by the worker."""
_PIECE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class _Suspect:
    chunk_id: int
    project_id: str
    digest: str
    object_key: str
    size_bytes: int


def report_damage(
    context: ServiceContext, principal: Principal, checkpoint_id: str, digests: Sequence[str]
) -> DamageAnswer:
    """What re-reading found. Chunks that are unknown are damaged as far as a reader is concerned; idempotent."""
    wanted = list(dict.fromkeys(digests))
    with context.database.read() as session:
        project_id = readable_checkpoint(session, principal, checkpoint_id).project_id
        rows = repository.rows_of(session, project_id, wanted)
    suspects = [_suspect(row) for digest in wanted if (row := rows.get(digest)) and row.state == ChunkState.STORED]
    now, later = _split(suspects)
    _mark(context, later)
    damaged_now = read_again(context, now)
    known_bad = [digest for digest in wanted if digest not in rows or rows[digest].state != ChunkState.STORED]
    return DamageAnswer(
        damaged=[*known_bad, *(suspect.digest for suspect in damaged_now)],
        whole=[suspect.digest for suspect in now if suspect not in damaged_now],
        pending=[suspect.digest for suspect in later],
    )


def read_suspects(context: ServiceContext, *, at_most: int = 100) -> None:
    """The worker's part: reads chunks that were reported and not yet read again."""
    with context.database.read() as session:
        query = select(Chunk).where(Chunk.suspected_at.is_not(None), Chunk.state == ChunkState.STORED).limit(at_most)
        suspects = [_suspect(row) for row in session.scalars(query)]
    read_again(context, suspects)


def read_again(context: ServiceContext, suspects: Sequence[_Suspect]) -> list[_Suspect]:
    """Re-reads the objects and quarantines those whose bytes are not what their name says; gives those."""
    damaged = [suspect for suspect in suspects if not _is_whole(context, suspect)]
    sound = [suspect.chunk_id for suspect in suspects if suspect not in damaged]
    if sound:
        with context.database.write() as session:
            session.execute(update(Chunk).where(Chunk.id.in_(sound)).values(suspected_at=None))
    if damaged:
        _quarantine(context, damaged)
    return damaged


def _quarantine(context: ServiceContext, damaged: Sequence[_Suspect]) -> None:
    """Only where the row still names the object that was read: it may have been healed meanwhile."""
    with context.database.write() as session:
        for suspect in damaged:
            session.execute(
                update(Chunk)
                .where(Chunk.id == suspect.chunk_id, Chunk.object_key == suspect.object_key)
                .where(Chunk.state == ChunkState.STORED)
                .values(state=ChunkState.QUARANTINED.value, suspected_at=None)
            )
    for project_id in {suspect.project_id for suspect in damaged}:
        ids = [suspect.chunk_id for suspect in damaged if suspect.project_id == project_id]
        quarantine_checkpoints(context, project_id, ids)


def _is_whole(context: ServiceContext, suspect: _Suspect) -> bool:
    hasher = ChunkHasher()
    try:
        for piece in context.blob_store.stream(suspect.object_key, 0, suspect.size_bytes, piece_bytes=_PIECE_BYTES):
            hasher.update(piece)
    except BlobMissing:
        return False
    return hasher.finish().digest == suspect.digest


def _mark(context: ServiceContext, suspects: Sequence[_Suspect]) -> None:
    if not suspects:
        return
    with context.database.write() as session:
        ids = [suspect.chunk_id for suspect in suspects]
        session.execute(update(Chunk).where(Chunk.id.in_(ids)).values(suspected_at=context.database.now(session)))


def _split(suspects: Sequence[_Suspect]) -> tuple[list[_Suspect], list[_Suspect]]:
    now: list[_Suspect] = []
    budget = AT_ONCE_BYTES
    for position, suspect in enumerate(suspects):
        budget -= suspect.size_bytes
        if budget < 0 and now:
            return now, list(suspects[position:])
        now.append(suspect)
    return now, []


def _suspect(row: Chunk) -> _Suspect:
    return _Suspect(row.id, row.project_id, row.digest, row.object_key, row.size_bytes)
