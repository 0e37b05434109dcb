"""Chunk rows written straight into the service's database: stored and verified, as if an upload had ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sqlalchemy import insert

from bench.simulated_checkpoint import SimulatedRank
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.chunks.object_keys import chunk_key
from shardkeep_service.database.database import Database
from shardkeep_service.database.tables import METADATA

_RANKS_AT_A_TIME = 32
_ORIGIN = "ckp_" + 32 * "0"


def seed_chunks(database_url: str, ranks: Sequence[SimulatedRank], *, project_id: str, run_id: str) -> None:
    """One row a chunk; no object is behind it, which only reading its bytes would notice."""
    database = Database(database_url)
    for start in range(0, len(ranks), _RANKS_AT_A_TIME):
        rows = [row for rank in ranks[start : start + _RANKS_AT_A_TIME] for row in _rows(rank, project_id, run_id)]
        with database.write() as session:
            session.execute(insert(METADATA.tables[Chunk.__tablename__]), rows)
    database.close()


def _rows(rank: SimulatedRank, project_id: str, run_id: str) -> list[dict[str, object]]:
    now = time.time_ns() // 1000
    return [
        {
            "project_id": project_id,
            "digest": ref.digest,
            "size_bytes": ref.size_bytes,
            "crc64": f"{ref.crc64:016x}",
            "object_key": chunk_key(project_id=project_id, checkpoint_id=_ORIGIN, digest=ref.digest, upload=1),
            "state": ChunkState.STORED.value,
            "verification": Verification.VERIFIED.value,
            "origin_run_id": run_id,
            "origin_checkpoint_id": _ORIGIN,
            "claimed_at": now,
            "stored_at": now,
            "verified_at": now,
            "uploads": 1,
        }
        for ref in rank.chunks.rows()
    ]
