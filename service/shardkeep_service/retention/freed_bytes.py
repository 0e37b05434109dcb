"""How many bytes go once a set of checkpoints is purged: those of chunks that only they name. Exact."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.chunk_ids import Ids, sizes_of
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.database.database import Database
from shardkeep_service.garbage_collection.marks import Marks, chunks_named_by, windows_of
from shardkeep_service.runs.lines import UNFINISHED

_STAY = (*UNFINISHED, CheckpointState.COMMITTED.value)
"""What is deleted already keeps nothing for long, so it does not count as naming a chunk."""


def freed_bytes(database: Database, project_id: str, deleted: Collection[str]) -> int:
    """Stored bytes of the project's chunks that `deleted` name and no other checkpoint that stays.

    Reads what every manifest of the project names once; a byte of memory for each chunk, at most 128 MiB, and about a
    hundred for each checkpoint.
    """
    if not deleted:
        return 0
    ids = set(deleted)
    freed = 0
    staying_and_going = _world_sizes(database, project_id)
    for window in windows_of(database, Chunk.project_id == project_id):
        going, staying = Marks(window), Marks(window)
        for named in chunks_named_by(database, staying_and_going):
            (going if named.checkpoint_id in ids else staying).add(named.chunk_ids)
        freed += _bytes_of(database, going.only_here(staying))
    return freed


def _world_sizes(database: Database, project_id: str) -> dict[str, int]:
    """Of every checkpoint whose manifests count."""
    query = select(Checkpoint.id, Checkpoint.world_size).where(
        Checkpoint.project_id == project_id, Checkpoint.state.in_(_STAY)
    )
    with database.read() as session:
        return dict(session.execute(query).all())


def _bytes_of(database: Database, chunk_ids: Ids) -> int:
    with database.read() as session:
        return sizes_of(session, chunk_ids, "").stored_bytes
