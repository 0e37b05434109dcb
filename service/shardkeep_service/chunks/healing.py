"""Which committed checkpoints a damaged chunk makes unusable, and which a healed one gives back.

A checkpoint is flagged `quarantined` while any chunk that its manifests name is not live: it is never the latest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.chunk_ids import Ids, all_stored, union_ids, unpack_ids
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.repository import lock_checkpoints
from shardkeep_service.service_context import ServiceContext


def quarantine_checkpoints(context: ServiceContext, project_id: str, chunk_ids: Collection[int]) -> list[str]:
    """Flags the committed checkpoints that name one of these chunks; gives their ids.

    Call after the chunks' own state is committed: a checkpoint that commits later re-checks its chunks itself.
    """
    damaged = np.array(sorted(chunk_ids), np.int64)
    with context.database.read() as session:
        named = sorted(
            {
                checkpoint_id
                for checkpoint_id, ids in _chunks_of(session, project_id, Checkpoint.quarantined.is_(False))
                if np.isin(damaged, ids).any()
            }
        )
    _flag(context, named, quarantined=True)
    return named


def release_healed_checkpoints(context: ServiceContext, project_id: str) -> list[str]:
    """Takes the flag from checkpoints all of whose chunks are live again; gives their ids."""
    with context.database.read() as session:
        parts: dict[str, list[Ids]] = {}
        for checkpoint_id, ids in _chunks_of(session, project_id, Checkpoint.quarantined.is_(True)):
            parts.setdefault(checkpoint_id, []).append(ids)
        whole = sorted(checkpoint_id for checkpoint_id, ids in parts.items() if all_stored(session, union_ids(ids)))
    _flag(context, whole, quarantined=False)
    return whole


def _chunks_of(session: Session, project_id: str, flag: ColumnElement[bool]) -> Iterator[tuple[str, Ids]]:
    """The chunk ids of each manifest of the project's committed (or deleted, restorable) checkpoints."""
    kept = (CheckpointState.COMMITTED.value, CheckpointState.DELETED.value)
    query = (
        select(ManifestRow.checkpoint_id, ManifestRow.chunk_ids)
        .join(Checkpoint, Checkpoint.id == ManifestRow.checkpoint_id)
        .where(Checkpoint.project_id == project_id, Checkpoint.state.in_(kept), flag)
        .execution_options(yield_per=100)
    )
    for checkpoint_id, packed in session.execute(query):
        yield checkpoint_id, unpack_ids(packed)


def _flag(context: ServiceContext, checkpoint_ids: Collection[str], *, quarantined: bool) -> None:
    if not checkpoint_ids:
        return
    with context.database.write() as session:
        for checkpoint in lock_checkpoints(session, checkpoint_ids).values():
            if checkpoint.quarantined != quarantined:
                checkpoint.quarantined = quarantined
                checkpoint.version += 1
    for checkpoint_id in checkpoint_ids:
        context.board.notify(checkpoint_id)
