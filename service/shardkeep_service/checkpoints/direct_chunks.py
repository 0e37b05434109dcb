"""Chunks that ranks sent to the object store themselves: looked for in one listing, and stored only when found.

The listing of the checkpoint's prefix serves it whole: two thousand chunks cost two requests. Where the store refuses a
body with another checksum than the signed one, an object of the declared size is the declared chunk, and counts as
`declared` until a scrub computes its digest. Elsewhere every object is read here and counts as `verified`: a checksum
that such a store gives back may be no more than what the client sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Final

import structlog

from shardkeep.format.chunks import ChunkHasher
from shardkeep_service.blob_store.blob_store import BlobInfo, BlobStore
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.checkpoints.chunk_ids import Ids
from shardkeep_service.chunks.direct import enforces_checksums
from shardkeep_service.chunks.object_keys import chunk_prefix
from shardkeep_service.chunks.pending import Arrived, arrived_among, pending_uploads, promote, renew_keys
from shardkeep_service.observability.metrics import DIRECT
from shardkeep_service.service_context import ServiceContext

log = structlog.get_logger("shardkeep.direct")

PAGE: Final = 1_000
"""Objects in one transaction: as many as one request of a listing gives."""
READERS: Final = 4
"""Objects being read at one time where the store vouches for none."""
_PIECE_BYTES: Final = 1 << 20


def accept_uploaded(
    context: ServiceContext, project_id: str, checkpoint_id: str, ids: Ids, *, keep_alive: Callable[[], None]
) -> None:
    """Makes those of the chunks stored that the checkpoint has pending and whose objects came whole.

    The others stay pending under new keys: their ranks are told to send them again, and whatever comes to an old key
    late is garbage. Every change is conditional on what was seen before the listing, so a validation that was taken
    over does no harm. Raises BlobStoreUnavailable.
    """
    with context.database.read() as session:
        expected = pending_uploads(session, checkpoint_id, ids.tolist())
    if not expected:
        return
    enforced = enforces_checksums(context)
    for page in _pages(context.blob_store.list(chunk_prefix(project_id=project_id, checkpoint_id=checkpoint_id))):
        with context.database.read() as session:
            arrived = arrived_among(session, checkpoint_id, project_id, page)
        if not enforced:
            arrived = _read_whole(context, arrived, keep_alive=keep_alive)
        if arrived:
            with context.database.write() as session:
                promote(session, checkpoint_id, arrived, verified=not enforced, now=context.database.now(session))
            sizes = context.metrics.upload_size.labels(DIRECT)
            for chunk in arrived:
                sizes.observe(chunk.object.size_bytes)
        keep_alive()
    _expect_again(context, project_id, checkpoint_id, expected)


def _expect_again(context: ServiceContext, project_id: str, checkpoint_id: str, expected: dict[int, int]) -> None:
    with context.database.write() as session:
        left = pending_uploads(session, checkpoint_id, list(expected))
        missing = {id_: expected[id_] for id_, number in left.items() if number == expected[id_]}
        renew_keys(session, checkpoint_id, project_id, missing, now=context.database.now(session))
    if missing:
        log.warning("chunks_not_uploaded", checkpoint=checkpoint_id, missing=len(missing), of=len(expected))


def _read_whole(
    context: ServiceContext, arrived: Sequence[Arrived], *, keep_alive: Callable[[], None]
) -> list[Arrived]:
    """Those whose bytes have the digest they are called by."""
    waiting = iter(arrived)
    reading: deque[tuple[Arrived, Future[bool]]] = deque()
    whole: list[Arrived] = []
    while True:
        for chunk in islice(waiting, READERS - len(reading)):
            reading.append((chunk, context.pools.storage.submit(_is_whole, context.blob_store, chunk.object)))
        if not reading:
            return whole
        chunk, is_whole = reading.popleft()
        if is_whole.result():
            whole.append(chunk)
        else:
            log.warning("uploaded_chunk_damaged", key=chunk.object.key)
        keep_alive()


def _is_whole(blob_store: BlobStore, info: BlobInfo) -> bool:
    hasher = ChunkHasher()
    try:
        for piece in blob_store.stream(info.key, 0, info.size_bytes, piece_bytes=_PIECE_BYTES):
            hasher.update(piece)
    except BlobMissing:
        return False
    return info.key.rpartition("/")[2].startswith(f"{hasher.finish().digest}.")


def _pages(listing: Iterator[BlobInfo]) -> Iterator[list[BlobInfo]]:
    while page := list(islice(listing, PAGE)):
        yield page
