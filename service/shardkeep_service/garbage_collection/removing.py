"""Removing condemned chunks, a grace after they were condemned: first the object, then the row.

A chunk that is uploaded again meanwhile is live under another key, which no delete of the old one can hurt, however
late it comes: keys are written once. Its row stays, since it is not condemned any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, select, tuple_

from shardkeep_service.access.usage import add_usage
from shardkeep_service.catalogue.state import rebuild_unfinished
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.garbage_collection.horizon import grace_horizon
from shardkeep_service.garbage_collection.tally import Tally
from shardkeep_service.service_context import ServiceContext

_AT_A_TIME: Final = 500


@dataclass(frozen=True, slots=True)
class _Condemned:
    chunk_id: int
    object_key: str


def remove_condemned(context: ServiceContext, tally: Tally) -> Iterator[int]:
    """Removes what was condemned a grace ago. Yields the objects handled, between any two steps."""
    last = 0
    while batch := _due(context, last):
        yield 0
        context.blob_store.delete([chunk.object_key for chunk in batch])
        yield len(batch)
        _remove_rows(context, batch, tally)
        yield 0
        last = batch[-1].chunk_id


def is_due(context: ServiceContext, now: int) -> ColumnElement[bool]:
    """Condemned a grace ago."""
    return and_(Chunk.state == ChunkState.CONDEMNED.value, Chunk.condemned_at < grace_horizon(context.settings, now))


def _due(context: ServiceContext, last: int) -> Sequence[_Condemned]:
    with context.database.read() as session:
        if rebuild_unfinished(session):
            return []
        due = is_due(context, context.database.now(session))
        query = select(Chunk.id, Chunk.object_key).where(due, Chunk.id > last).order_by(Chunk.id).limit(_AT_A_TIME)
        return [_Condemned(chunk_id, object_key) for chunk_id, object_key in session.execute(query)]


def _remove_rows(context: ServiceContext, removed: Sequence[_Condemned], tally: Tally) -> None:
    """Removes the rows that are still condemned and name the objects that went. Their ids are never used again."""
    freed: defaultdict[str, int] = defaultdict(int)
    pairs = [(chunk.chunk_id, chunk.object_key) for chunk in removed]
    with context.database.write() as session:
        statement = (
            delete(Chunk)
            .where(
                Chunk.id.in_([chunk.chunk_id for chunk in removed]),
                tuple_(Chunk.id, Chunk.object_key).in_(pairs),
                Chunk.state.concat("") == ChunkState.CONDEMNED.value,
            )
            .returning(Chunk.project_id, Chunk.size_bytes)
        )
        rows = session.execute(statement, execution_options={"synchronize_session": False}).all()
        for project_id, size_bytes in rows:
            freed[project_id] += size_bytes
        for project_id, size_bytes in sorted(freed.items()):
            add_usage(session, project_id, -size_bytes)
    tally.removed_chunks += len(rows)
    tally.removed_bytes += sum(freed.values())
    context.metrics.collected_objects.labels("chunk").inc(len(rows))
    context.metrics.collected_bytes.inc(sum(freed.values()))
