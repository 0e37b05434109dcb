"""How many bytes go once a set of checkpoints is purged: those of chunks that only they name. Exact."""

from __future__ import annotations

from collections.abc import Collection

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.chunk_ids import Ids, sizes_of
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.database.database import Database
from shardkeep_service.garbage_collection.marks import Marks, named_chunks, windows_of
from shardkeep_service.runs.lines import UNFINISHED

_STAY = (*UNFINISHED, CheckpointState.COMMITTED.value)
"""What is deleted already keeps nothing for long, so it does not count as naming a chunk."""


def freed_bytes(database: Database, project_id: str, deleted: Collection[str]) -> int:
    """Stored bytes of the project's chunks that `deleted` name and no other checkpoint that stays.

    Reads every manifest of the project once; a byte of memory for each chunk, at most 128 MiB.
    """
    if not deleted:
        return 0
    ids = set(deleted)
    freed = 0
    for window in windows_of(database, Chunk.project_id == project_id):
        going, staying = Marks(window), Marks(window)
        for named in named_chunks(database, Checkpoint.project_id == project_id, Checkpoint.state.in_(_STAY)):
            (going if named.checkpoint_id in ids else staying).add(named.chunk_ids)
        freed += _bytes_of(database, going.only_here(staying))
    return freed


def _bytes_of(database: Database, chunk_ids: Ids) -> int:
    with database.read() as session:
        return sizes_of(session, chunk_ids, "").stored_bytes
