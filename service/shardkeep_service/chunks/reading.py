"""Reading chunks: where a chunk of a readable checkpoint lies, and the targets by which a client fetches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import ReadTargets, Target
from shardkeep_service.access.principal import Principal
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.models import ChunkState
from shardkeep_service.chunks.places import readable_checkpoint
from shardkeep_service.errors import Refusal
from shardkeep_service.service_context import ServiceContext


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk that can be read."""

    object_key: str
    size_bytes: int
    crc64: str


def find_chunk(context: ServiceContext, principal: Principal, checkpoint_id: str, digest: str) -> StoredChunk:
    """Where the chunk lies; refuses `unknown_chunk`, and `chunk_damaged` for what must not be read."""
    with context.database.read() as session:
        project_id = readable_checkpoint(session, principal, checkpoint_id).project_id
        row = repository.row_of(session, project_id, digest)
    if row is None:
        raise _unknown([digest])
    if row.state in (ChunkState.QUARANTINED, ChunkState.LOST):
        raise Refusal(
            ErrorCode.CHUNK_DAMAGED,
            f"chunk {digest} is {row.state}: its stored bytes are not what they should be; use an older checkpoint, or"
            " save again from a job that still holds the state, which heals it",
            chunks=[digest],
        )
    return StoredChunk(row.object_key, row.size_bytes, row.crc64)


def read_targets(
    context: ServiceContext, principal: Principal, checkpoint_id: str, digests: Sequence[str]
) -> ReadTargets:
    """Where to fetch chunks, in the order asked."""
    with context.database.read() as session:
        project_id = readable_checkpoint(session, principal, checkpoint_id).project_id
        found = repository.rows_of(session, project_id, sorted(set(digests)))
    absent = [digest for digest in digests if digest not in found]
    if absent:
        raise _unknown(absent)
    return ReadTargets(targets=[_target(checkpoint_id, digest) for digest in digests])


def _target(checkpoint_id: str, digest: str) -> Target:
    return Target(method="GET", url=routes.path(routes.CHUNK, checkpoint=checkpoint_id, digest=digest))


def _unknown(digests: Sequence[str]) -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_CHUNK,
        f"{len(digests)} chunks are not stored, the first is {digests[0]}",
        chunks=list(digests),
    )
