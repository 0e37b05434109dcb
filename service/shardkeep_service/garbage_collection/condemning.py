"""Condemning: marks every chunk that a manifest names, and condemns the others that nobody claimed for long.

What is marked: the manifests of every checkpoint that is not aborted; of a purged one until its purge is through. See
`horizon.py` for why writers that are under way lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from sqlalchemy import ColumnElement, select, update

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.catalogue.state import rebuild_unfinished
from shardkeep_service.checkpoints.chunk_ids import Ids
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.chunks.state_lock import lock_chunk_states
from shardkeep_service.garbage_collection.horizon import claim_horizon
from shardkeep_service.garbage_collection.marks import Marks, Window, named_chunks, windows_of
from shardkeep_service.garbage_collection.tally import Tally
from shardkeep_service.service_context import ServiceContext

_LOOKED_AT_AT_A_TIME: Final = 10_000
_CONDEMNED_AT_A_TIME: Final = 500
"""In one transaction: on SQLite everybody else waits for it."""
_CONDEMNED: Final = ChunkState.CONDEMNED.value


def condemn_unneeded(context: ServiceContext, tally: Tally) -> Iterator[int]:
    """Condemns what nobody needs. Yields the rows handled, between any two steps."""
    with context.database.read() as session:
        horizon = claim_horizon(context.settings, context.database.now(session))
    yield 0
    for unneeded in find_unneeded(context, horizon):
        yield len(unneeded)
        for start in range(0, len(unneeded), _CONDEMNED_AT_A_TIME):
            _condemn(context, unneeded[start : start + _CONDEMNED_AT_A_TIME], horizon, tally)
            yield 0


def find_unneeded(context: ServiceContext, horizon: int) -> Iterator[Ids]:
    """Ids of chunks that no manifest named while this marked, and nobody claimed since the horizon; also empty ones.

    The horizon must have been taken before this begins.
    """
    for window in windows_of(context.database):
        marks = Marks(window)
        for named in named_chunks(context.database, Checkpoint.state != CheckpointState.ABORTED.value):
            marks.add(named.chunk_ids)
        yield np.empty(0, np.int64)
        for ids in _unclaimed(context, window, horizon):
            yield marks.unmarked(ids)


def _unclaimed(context: ServiceContext, window: Window, horizon: int) -> Iterator[Ids]:
    last = window.start - 1
    while True:
        with context.database.read() as session:
            query = select(Chunk.id).where(Chunk.id > last, Chunk.id < window.end, *_unclaimed_since(horizon))
            ids = session.scalars(query.order_by(Chunk.id).limit(_LOOKED_AT_AT_A_TIME)).all()
        if ids:
            yield np.array(ids, np.int64)
            last = ids[-1]
        if len(ids) < _LOOKED_AT_AT_A_TIME:
            return


def _condemn(context: ServiceContext, ids: Ids, horizon: int, tally: Tally) -> None:
    """One conditional update: a chunk that was claimed since it was looked at stays."""
    with context.database.write() as session:
        if rebuild_unfinished(session):
            return
        projects = select(Chunk.project_id).where(Chunk.id.in_(ids.tolist())).distinct()
        for project_id in sorted(session.scalars(projects)):
            lock_chunk_states(session, project_id)  # a commit that checks its chunks now is not overlooked
        statement = (
            update(Chunk)
            .where(Chunk.id.in_(ids.tolist()), *_unclaimed_since(horizon))
            .values(state=_CONDEMNED, condemned_at=context.database.now(session), suspected_at=None)
            .returning(Chunk.size_bytes)
        )
        sizes = session.scalars(statement, execution_options={"synchronize_session": False}).all()
    tally.condemned_chunks += len(sizes)
    tally.condemned_bytes += sum(sizes)
    context.metrics.condemned_chunks.inc(len(sizes))


def _unclaimed_since(horizon: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    # The concatenation keeps SQLite from walking its index on the state.
    return Chunk.claimed_at < horizon, Chunk.state.concat("") != _CONDEMNED
