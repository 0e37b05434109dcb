"""What collection would remove: counted, nothing touched."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from shardkeep_service.checkpoints.chunk_ids import sizes_of
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.garbage_collection.condemning import find_unneeded
from shardkeep_service.garbage_collection.horizon import claim_horizon, grace_horizon
from shardkeep_service.garbage_collection.models import StraySighting
from shardkeep_service.garbage_collection.progress import collection_state
from shardkeep_service.garbage_collection.purge import aborted_candidates, purge_candidates
from shardkeep_service.garbage_collection.removing import is_due
from shardkeep_service.moments import MICROS_PER_SECOND
from shardkeep_service.service_context import ServiceContext


@dataclass(frozen=True, slots=True)
class Amount:
    """How many, and how many bytes."""

    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What the next pass would do."""

    purged_checkpoints: int
    cleared_aborted_checkpoints: int
    condemned_chunks: Amount
    """Needed by nobody now. What the purge of this pass makes needless comes on top."""
    removed_chunks: Amount
    """Condemned a grace ago."""
    waiting_chunks: Amount
    """Condemned later."""
    removed_strays: Amount
    """Seen a grace ago; removed if the next pass still finds them."""
    waiting_strays: Amount


def survey(context: ServiceContext) -> Survey:
    """Reads every manifest once, as a pass does."""
    with context.database.read() as session:
        now = context.database.now(session)
        due = is_due(context, now)
        condemned = Chunk.state == ChunkState.CONDEMNED.value
        old = StraySighting.first_seen_at < grace_horizon(context.settings, now)
        found = Survey(
            purged_checkpoints=_checkpoints(session, purge_candidates(context, now)),
            cleared_aborted_checkpoints=_checkpoints(session, aborted_candidates(context, now)),
            condemned_chunks=Amount(0, 0),
            removed_chunks=_chunks(session, due),
            waiting_chunks=_chunks(session, condemned & ~due),
            removed_strays=_strays(session, old),
            waiting_strays=_strays(session, ~old),
        )
    return _with_condemned(context, found, claim_horizon(context.settings, now))


def measure_candidates(context: ServiceContext) -> None:
    """Sets the gauges of what waits to be removed, and of the lag."""
    with context.database.read() as session:
        now = context.database.now(session)
        gauge = context.metrics.collection_candidates
        gauge.labels("checkpoint").set(_checkpoints(session, Checkpoint.state == "deleted"))
        gauge.labels("chunk").set(_chunks(session, Chunk.state == ChunkState.CONDEMNED.value).count)
        gauge.labels("stray").set(_strays(session, StraySighting.size_bytes >= 0).count)
        state = collection_state(session)
    ended_at = None if state is None else state.ended_at
    context.metrics.collection_lag.set(0 if ended_at is None else max(0, now - ended_at) / MICROS_PER_SECOND)


def _with_condemned(context: ServiceContext, found: Survey, horizon: int) -> Survey:
    count = size_bytes = 0
    for ids in find_unneeded(context, horizon):
        with context.database.read() as session:
            size_bytes += sizes_of(session, ids, "").stored_bytes
        count += len(ids)
    return replace(found, condemned_chunks=Amount(count, size_bytes))


def _checkpoints(session: Session, wanted: ColumnElement[bool]) -> int:
    return session.scalars(select(func.count()).select_from(Checkpoint).where(wanted)).one()


def _chunks(session: Session, wanted: ColumnElement[bool]) -> Amount:
    query = select(func.count(), func.coalesce(func.sum(Chunk.size_bytes), 0)).select_from(Chunk).where(wanted)
    count, size_bytes = session.execute(query).one()
    return Amount(count, int(size_bytes))


def _strays(session: Session, wanted: ColumnElement[bool]) -> Amount:
    total = func.coalesce(func.sum(StraySighting.size_bytes), 0)
    count, size_bytes = session.execute(select(func.count(), total).select_from(StraySighting).where(wanted)).one()
    return Amount(count, int(size_bytes))
