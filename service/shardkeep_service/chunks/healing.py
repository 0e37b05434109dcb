"""Which committed checkpoints a damaged chunk makes unusable, and which a healed one gives back.

A checkpoint is flagged `quarantined` while any chunk that its manifests name is not live: it is never the latest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.chunk_ids import Ids, all_stored, union_ids, unpack_ids
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.repository import lock_checkpoints
from shardkeep_service.chunks.state_lock import hold_chunk_states
from shardkeep_service.integrity.findings import settle_findings, unusable_checkpoints
from shardkeep_service.service_context import ServiceContext

_KEPT: Final = (
    CheckpointState.COMMITTED.value,
    CheckpointState.DELETED.value,
    CheckpointState.UNCONFIRMED.value,
)


def quarantine_checkpoints(context: ServiceContext, project_id: str, chunk_ids: Collection[int]) -> list[str]:
    """Flags the committed checkpoints that name one of these chunks; gives their ids.

    Call after the chunks' own state is committed, by a transaction that took `lock_chunk_states`: a checkpoint that
    commits later re-checks its chunks itself.
    """
    damaged = np.array(sorted(chunk_ids), np.int64)
    with context.database.read() as session:
        named = sorted(
            {checkpoint_id for checkpoint_id, ids in _chunks_of(session, project_id) if np.isin(damaged, ids).any()}
        )
    return _judge(context, project_id, named, quarantined=True)


def release_healed_checkpoints(context: ServiceContext, project_id: str) -> list[str]:
    """Takes the flag from checkpoints all of whose chunks are live again; gives their ids."""
    with context.database.write() as session:
        settle_findings(session, project_id)
    with context.database.read() as session:
        flagged = select(Checkpoint.id).where(Checkpoint.project_id == project_id, Checkpoint.quarantined.is_(True))
        found = list(session.scalars(flagged.where(Checkpoint.state.in_(_KEPT))))
    return _judge(context, project_id, found, quarantined=False)


def judge_checkpoint(context: ServiceContext, project_id: str, checkpoint_id: str) -> bool:
    """Sets a checkpoint's flag as all that it needs is at this moment; whether it is quarantined."""
    return bool(_judge(context, project_id, [checkpoint_id], quarantined=True))


def _chunks_of(session: Session, project_id: str) -> Iterator[tuple[str, Ids]]:
    """The chunk ids of each manifest of the project's committed (or deleted, restorable) checkpoints."""
    query = (
        select(ManifestRow.checkpoint_id, ManifestRow.chunk_ids)
        .join(Checkpoint, Checkpoint.id == ManifestRow.checkpoint_id)
        .where(Checkpoint.project_id == project_id, Checkpoint.state.in_(_KEPT))
        .execution_options(yield_per=100)
    )
    for checkpoint_id, packed in session.execute(query):
        yield checkpoint_id, unpack_ids(packed)


def _judge(
    context: ServiceContext, project_id: str, checkpoint_ids: Collection[str], *, quarantined: bool
) -> list[str]:
    """Sets each flag as the chunks are at this moment; gives those whose flag is `quarantined` then.

    What the caller read before may be outdated: a chunk healed, or another one damaged, by another replica. Whoever
    changes a chunk judges after it, and the one who judges last sees all.
    """
    if not checkpoint_ids:
        return []
    judged: list[str] = []
    with context.database.write() as session:
        locked = lock_checkpoints(session, checkpoint_ids)
        hold_chunk_states(session, project_id)
        unusable = unusable_checkpoints(session, list(locked))
        for checkpoint in locked.values():
            packed = session.scalars(select(ManifestRow.chunk_ids).where(ManifestRow.checkpoint_id == checkpoint.id))
            damaged = checkpoint.id in unusable or not all_stored(
                session, union_ids([unpack_ids(ids) for ids in packed])
            )
            if checkpoint.quarantined != damaged:
                checkpoint.quarantined = damaged
                checkpoint.version += 1
            if damaged == quarantined:
                judged.append(checkpoint.id)
    for checkpoint_id in judged:
        context.board.notify(checkpoint_id)
    return sorted(judged)
