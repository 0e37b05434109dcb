"""Making an index again from its manifests, where its object was damaged or lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from blake3 import blake3

from shardkeep.errors import FormatError
from shardkeep.format.index import IndexBuilder, encode_index
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.errors import BlobExists, BlobMissing
from shardkeep_service.catalogue.reading import read_object
from shardkeep_service.checkpoints.models import ManifestRow
from shardkeep_service.checkpoints.object_keys import index_key
from shardkeep_service.checkpoints.stored_manifests import read_manifests
from shardkeep_service.service_context import ServiceContext

_KEY_TRIES: Final = 100


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """Where an index is and what it must be."""

    object_key: str
    digest: str


def index_is_whole(blob_store: BlobStore, index: StoredIndex) -> bool:
    """Whether the stored bytes are those of the digest."""
    try:
        return blake3(read_object(blob_store, index.object_key)).hexdigest() == index.digest
    except BlobMissing:
        return False


def make_index(
    context: ServiceContext, *, project_id: str, checkpoint_id: str, rows: Sequence[ManifestRow]
) -> StoredIndex:
    """Builds the index from the manifests and stores it under a key of its own.

    FormatError or BlobMissing when a manifest cannot be read back, or when they are no checkpoint.
    """
    builder = IndexBuilder()
    for manifest in read_manifests(context, rows):
        builder.add(manifest)
    index, problems = builder.finish()
    if problems:
        raise FormatError(f"the manifests are no checkpoint: tensor {problems[0].tensor}: {problems[0].detail}")
    encoded = memoryview(encode_index(index))
    digest = blake3(encoded).hexdigest()
    return StoredIndex(_put(context.blob_store, index_key(project_id, checkpoint_id, digest), encoded), digest)


def _put(blob_store: BlobStore, key: str, body: memoryview) -> str:
    """The key under which it lies now: the damaged object keeps the first one."""
    for name in (key, *(f"{key}.{number}" for number in range(2, _KEY_TRIES))):
        try:
            blob_store.put(name, body)
        except BlobExists:
            continue
        return name
    raise FormatError(f"{_KEY_TRIES} damaged indexes lie under {key}: the object store cannot keep one")
