"""Reading chunks: where a chunk of a readable checkpoint lies, and the targets by which a client fetches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AskReadTargets, ReadTargets, Target
from shardkeep_service.access.principal import Principal
from shardkeep_service.chunks import repository
from shardkeep_service.chunks.direct import get_target, read_presigner
from shardkeep_service.chunks.models import ChunkState
from shardkeep_service.chunks.places import readable_checkpoint
from shardkeep_service.chunks.reach import hidden_digests
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
        checkpoint = readable_checkpoint(session, principal, checkpoint_id)
        row = repository.row_of(session, checkpoint.project_id, digest)
        hidden = hidden_digests(session, principal, checkpoint, [digest])
    if row is None or row.state == ChunkState.PENDING or hidden:
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
    context: ServiceContext, principal: Principal, checkpoint_id: str, asked: AskReadTargets
) -> ReadTargets:
    """Where to fetch chunks, in the order asked. One that is not live is fetched here, where it is refused by name."""
    with context.database.read() as session:
        checkpoint = readable_checkpoint(session, principal, checkpoint_id)
        wanted = sorted(set(asked.digests))
        found = repository.places_of(session, checkpoint.project_id, wanted)
        hidden = hidden_digests(session, principal, checkpoint, wanted)
    absent = [digest for digest in asked.digests if digest not in found or digest in hidden]
    if absent:
        raise _unknown(absent)
    presigner = read_presigner(context) if asked.direct else None
    return ReadTargets(
        targets=[
            get_target(context, presigner, found[digest].object_key)
            if presigner is not None and found[digest].is_live
            else _streamed(checkpoint_id, digest)
            for digest in asked.digests
        ]
    )


def _streamed(checkpoint_id: str, digest: str) -> Target:
    return Target(method="GET", url=routes.path(routes.CHUNK, checkpoint=checkpoint_id, digest=digest))


def _unknown(digests: Sequence[str]) -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_CHUNK,
        f"{len(digests)} chunks are not stored, the first is {digests[0]}",
        chunks=list(digests),
    )
