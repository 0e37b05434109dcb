"""Reading stored manifests back, checked against the digest of what arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Final, TypeAlias

from blake3 import blake3

from shardkeep.errors import FormatError
from shardkeep.format.manifest import Manifest, decode_manifest
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.checkpoints.models import ManifestRow
from shardkeep_service.service_context import ServiceContext

READ_AHEAD: Final = 8
"""Manifests being read while one is used: an object store answers in tens of milliseconds."""
Unreadable: TypeAlias = FormatError | BlobMissing
"""Why a manifest cannot be read back: its bytes are damaged, or there are none."""


def read_manifests(context: ServiceContext, rows: Sequence[ManifestRow]) -> Iterator[Manifest]:
    """The manifests in the order of `rows`; the first that is `Unreadable` is raised."""
    for _, manifest in try_manifests(context, rows):
        if not isinstance(manifest, Manifest):
            raise manifest
        yield manifest


def try_manifests(
    context: ServiceContext, rows: Sequence[ManifestRow]
) -> Iterator[tuple[ManifestRow, Manifest | Unreadable]]:
    """Each row with its manifest, or with what keeps it from being read."""
    ahead: deque[tuple[ManifestRow, Future[Manifest | Unreadable]]] = deque()
    waiting = iter(rows)
    for row in islice(waiting, READ_AHEAD):
        ahead.append((row, context.pools.storage.submit(_try_manifest, context.blob_store, row)))
    while ahead:
        row, reading = ahead.popleft()
        manifest = reading.result()
        for following in islice(waiting, 1):
            ahead.append((following, context.pools.storage.submit(_try_manifest, context.blob_store, following)))
        yield row, manifest


def read_manifest_body(blob_store: BlobStore, row: ManifestRow) -> memoryview:
    """The encoded bytes of a stored manifest, checked against the digest of what arrived."""
    body = memoryview(bytearray(row.size_bytes))
    blob_store.read_into(row.object_key, 0, body)
    if blake3(body).hexdigest() != row.body_digest:
        raise FormatError(f"the stored manifest of rank {row.rank} at {row.object_key} is damaged")
    return body


def _try_manifest(blob_store: BlobStore, row: ManifestRow) -> Manifest | Unreadable:
    try:
        return decode_manifest(read_manifest_body(blob_store, row))
    except (FormatError, BlobMissing) as exc:
        return exc
