"""Reported damage: the service reads the chunks again itself, and quarantines what is really damaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select, update

from shardkeep.protocol.messages import DamageAnswer
from shardkeep_service.access.principal import Principal
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.chunks.places import readable_checkpoint
from shardkeep_service.chunks.reach import hidden_digests
from shardkeep_service.integrity.chunk_reading import ChunkToRead, chunk_to_read, read_chunks
from shardkeep_service.service_context import ServiceContext

AT_ONCE_BYTES: Final = 128 << 20
"""Read within the request; the rest is marked and read by the worker."""


def report_damage(
    context: ServiceContext, principal: Principal, checkpoint_id: str, digests: Sequence[str]
) -> DamageAnswer:
    """What re-reading found. Chunks that are unknown are damaged as far as a reader is concerned; idempotent."""
    wanted = list(dict.fromkeys(digests))
    with context.database.read() as session:
        checkpoint = readable_checkpoint(session, principal, checkpoint_id)
        hidden = hidden_digests(session, principal, checkpoint, wanted)
        visible = [digest for digest in wanted if digest not in hidden]
        rows = repository.rows_of(session, checkpoint.project_id, visible)
    suspects = [chunk_to_read(row) for digest in wanted if (row := rows.get(digest)) and row.state == ChunkState.STORED]
    now, later = _split(suspects)
    _mark(context, later)
    read = read_chunks(context, now)
    _mark(context, read.unread)
    known_bad = [digest for digest in wanted if digest not in rows or rows[digest].state != ChunkState.STORED]
    return DamageAnswer(
        damaged=[*known_bad, *(chunk.digest for chunk in read.damaged)],
        whole=[chunk.digest for chunk in read.whole],
        pending=[chunk.digest for chunk in (*later, *read.unread)],
    )


def read_suspects(context: ServiceContext, *, at_most: int = 100) -> None:
    """The worker's part: reads chunks that were reported and not yet read again."""
    with context.database.read() as session:
        query = select(Chunk).where(Chunk.suspected_at.is_not(None), Chunk.state == ChunkState.STORED).limit(at_most)
        suspects = [chunk_to_read(row) for row in session.scalars(query)]
    read_chunks(context, suspects)


def _mark(context: ServiceContext, suspects: Sequence[ChunkToRead]) -> None:
    if not suspects:
        return
    with context.database.write() as session:
        ids = [suspect.chunk_id for suspect in suspects]
        session.execute(update(Chunk).where(Chunk.id.in_(ids)).values(suspected_at=context.database.now(session)))


def _split(suspects: Sequence[ChunkToRead]) -> tuple[list[ChunkToRead], list[ChunkToRead]]:
    now: list[ChunkToRead] = []
    budget = AT_ONCE_BYTES
    for position, suspect in enumerate(suspects):
        budget -= suspect.size_bytes
        if budget < 0 and now:
            return now, list(suspects[position:])
        now.append(suspect)
    return now, []
