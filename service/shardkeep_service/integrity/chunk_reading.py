"""Reading chunks again: the one way by which a chunk is found whole, damaged or lost, whoever asked for it.

A damaged one is quarantined, and with it the checkpoints that name it, until a save brings it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import structlog
from sqlalchemy import update

from shardkeep.format.chunks import ChunkHasher
from shardkeep_service.access.audit import WORKER, record
from shardkeep_service.blob_store.errors import BlobMissing, BlobStoreUnavailable
from shardkeep_service.chunks.healing import quarantine_checkpoints
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.chunks.state_lock import lock_chunk_states
from shardkeep_service.integrity.findings import note_finding, note_harm
from shardkeep_service.integrity.models import Damage, ObjectKind
from shardkeep_service.service_context import ServiceContext

log = structlog.get_logger("shardkeep.integrity")

_PIECE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class ChunkToRead:
    """A stored chunk as its row was when it was looked up: what is found holds only while the row says the same."""

    chunk_id: int
    project_id: str
    checkpoint_id: str
    digest: str
    object_key: str
    size_bytes: int


@dataclass(slots=True)
class ChunksRead:
    """What reading gave. `unread` are those that the store did not give now; nothing is said of them."""

    whole: list[ChunkToRead] = field(default_factory=list)
    damaged: list[ChunkToRead] = field(default_factory=list)
    unread: list[ChunkToRead] = field(default_factory=list)


class _Condition(StrEnum):
    WHOLE = "whole"
    DAMAGED = "damaged"
    LOST = "lost"
    UNREAD = "unread"


def chunk_to_read(row: Chunk) -> ChunkToRead:
    """The chunk of a row."""
    return ChunkToRead(row.id, row.project_id, row.origin_checkpoint_id, row.digest, row.object_key, row.size_bytes)


def read_chunks(context: ServiceContext, chunks: Sequence[ChunkToRead]) -> ChunksRead:
    """Reads the objects and compares their digests: marks the whole ones verified and quarantines the others."""
    read = ChunksRead()
    conditions = {chunk.chunk_id: _read(context, chunk) for chunk in chunks}
    for chunk in chunks:
        condition = conditions[chunk.chunk_id]
        if condition is _Condition.WHOLE:
            read.whole.append(chunk)
        elif condition is _Condition.UNREAD:
            read.unread.append(chunk)
        else:
            read.damaged.append(chunk)
    _mark_verified(context, read.whole)
    _quarantine(context, [(chunk, conditions[chunk.chunk_id]) for chunk in read.damaged])
    return read


def _read(context: ServiceContext, chunk: ChunkToRead) -> _Condition:
    try:
        return _compare(context, chunk)
    except BlobStoreUnavailable as exc:
        log.warning("chunk_not_read", key=chunk.object_key, reason=str(exc))
        return _Condition.UNREAD


def _compare(context: ServiceContext, chunk: ChunkToRead) -> _Condition:
    hasher = ChunkHasher()
    try:
        for piece in context.blob_store.stream(chunk.object_key, 0, chunk.size_bytes, piece_bytes=_PIECE_BYTES):
            hasher.update(piece)
    except BlobMissing:
        return _Condition.LOST if context.blob_store.size(chunk.object_key) is None else _Condition.DAMAGED
    return _Condition.WHOLE if hasher.finish().digest == chunk.digest else _Condition.DAMAGED


def _lock_order(chunk: ChunkToRead) -> tuple[str, str]:
    """Rows of chunks are locked in the order of their digests, as everywhere, so that two writers never deadlock."""
    return chunk.project_id, chunk.digest


def _mark_verified(context: ServiceContext, chunks: Sequence[ChunkToRead]) -> None:
    if not chunks:
        return
    with context.database.write() as session:
        now = context.database.now(session)
        for chunk in sorted(chunks, key=_lock_order):
            session.execute(
                update(Chunk)
                .where(Chunk.id == chunk.chunk_id, Chunk.object_key == chunk.object_key)
                .values(verification=Verification.VERIFIED.value, verified_at=now, suspected_at=None),
                execution_options={"synchronize_session": False},
            )


def _quarantine(context: ServiceContext, damaged: Sequence[tuple[ChunkToRead, _Condition]]) -> None:
    """Only where the row still names the object that was read: it may have been healed meanwhile."""
    taken: list[ChunkToRead] = []
    if not damaged:
        return
    with context.database.write() as session:
        for project_id in sorted({chunk.project_id for chunk, _ in damaged}):
            lock_chunk_states(session, project_id)
        for chunk, condition in sorted(damaged, key=lambda found: _lock_order(found[0])):
            lost = condition is _Condition.LOST
            changed = session.scalars(
                update(Chunk)
                .where(Chunk.id == chunk.chunk_id, Chunk.object_key == chunk.object_key)
                .where(Chunk.state == ChunkState.STORED)
                .values(state=(ChunkState.LOST if lost else ChunkState.QUARANTINED).value, suspected_at=None)
                .returning(Chunk.id),
                execution_options={"synchronize_session": False},
            ).first()
            if changed is None:
                continue
            taken.append(chunk)
            note_finding(
                session,
                project_id=chunk.project_id,
                checkpoint_id=chunk.checkpoint_id,
                kind=ObjectKind.CHUNK,
                damage=Damage.LOST if lost else Damage.DAMAGED,
                object_key=chunk.object_key,
                digest=chunk.digest,
                detail=_detail(chunk, condition),
            )
    for chunk in taken:
        context.metrics.damaged_objects.labels(ObjectKind.CHUNK.value).inc()
        _quarantine_checkpoints_of(context, chunk)


def _quarantine_checkpoints_of(context: ServiceContext, chunk: ChunkToRead) -> None:
    harmed = quarantine_checkpoints(context, chunk.project_id, [chunk.chunk_id])
    if not harmed:
        return
    log.error("checkpoints_harmed", key=chunk.object_key, checkpoints=harmed)
    with context.database.write() as session:
        note_harm(session, chunk.object_key, harmed)
        for checkpoint_id in harmed:
            detail = {"object": chunk.object_key}
            record(
                session, WORKER, "checkpoint.quarantine", target=checkpoint_id, project_id=chunk.project_id,
                detail=detail,
            )  # fmt: skip


def _detail(chunk: ChunkToRead, condition: _Condition) -> str:
    if condition is _Condition.LOST:
        return f"no object is stored of chunk {chunk.digest}"
    return f"the {chunk.size_bytes} bytes stored of chunk {chunk.digest} have another digest, or are fewer"
