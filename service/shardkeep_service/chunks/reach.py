"""What a token bound to one run may touch of its project's chunks: those its run has, and no other run's.

A chunk has one row for the whole project. To a job's token it exists when its run stored it, when a checkpoint it may
read names it, or when the job sent the very bytes itself: then a proof is kept until the checkpoint ends. Tokens that
are not bound to a run are not asked anything here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.chunk_ids import Ids, digests_of, unpack_ids
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.models import Chunk, ChunkProof
from shardkeep_service.database.many import among_integers
from shardkeep_service.inserts import insert_if_absent

_BATCH = 10_000


def hidden_digests(
    session: Session, principal: Principal, checkpoint: Checkpoint, digests: Sequence[str]
) -> Collection[str]:
    """Those of the digests that do not exist as far as this token and this readable checkpoint are concerned."""
    if principal.run_id is None:
        return ()
    rows = repository.rows_of(session, checkpoint.project_id, digests)
    foreign = {row.id: digest for digest, row in rows.items() if row.origin_run_id != principal.run_id}
    hidden = _not_named(session, np.array(sorted(foreign), np.int64), [checkpoint.id])
    return {foreign[id_] for id_ in hidden.tolist()}


def unproven_digests(session: Session, principal: Principal, checkpoint: Checkpoint, ids: Ids) -> list[str]:
    """Those of the chunks a manifest names that the job neither sent nor has from its run: it must send them first."""
    if principal.run_id is None:
        return []
    query = select(Chunk.id).where(among_integers(Chunk.id), Chunk.origin_run_id != principal.run_id)
    foreign: list[int] = []
    for batch in _batches(ids):
        foreign.extend(session.scalars(query, {"integers": batch}))
    proofs = select(ChunkProof.chunk_id).where(ChunkProof.checkpoint_id == checkpoint.id)
    sent = np.array(sorted(session.scalars(proofs)), np.int64)
    left = np.setdiff1d(np.array(sorted(foreign), np.int64), sent, assume_unique=True)
    if checkpoint.parent_id is not None:
        left = _not_named(session, left, [checkpoint.parent_id])
    return sorted(digests_of(session, left).values())


def keep_proof(session: Session, checkpoint_id: str, chunk_id: int) -> None:
    """Notes that these bytes were sent for this checkpoint although another run had stored them."""
    insert_if_absent(session, ChunkProof, {"checkpoint_id": checkpoint_id, "chunk_id": chunk_id})


def _not_named(session: Session, ids: Ids, checkpoint_ids: Sequence[str]) -> Ids:
    """Those of the chunks that no manifest of these checkpoints names."""
    query = select(ManifestRow.chunk_ids).where(ManifestRow.checkpoint_id.in_(checkpoint_ids))
    for packed in session.scalars(query):
        if not len(ids):
            break
        ids = np.setdiff1d(ids, unpack_ids(packed), assume_unique=True)
    return ids


def _batches(ids: Ids) -> Iterator[list[int]]:
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH].tolist()
