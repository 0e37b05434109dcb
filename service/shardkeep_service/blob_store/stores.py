"""Which store a service keeps its objects in, with its wrappers: chosen here, by the settings, once.

From the outside in: operations are measured with their retries; retries are around S3 only, for a disk that failed does
not come back by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.blob_store.measured import measured
from shardkeep_service.blob_store.presigner import Presigner, StoreAbilities
from shardkeep_service.blob_store.retrying import RetryingBlobStore, RetryPolicy
from shardkeep_service.observability.metrics import Metrics
from shardkeep_service.settings import Settings

_OBJECTS: Final = "blobs"


@dataclass(frozen=True, slots=True)
class Stores:
    """The store, and what goes with it where clients can reach it themselves."""

    blob_store: BlobStore
    presigner: Presigner | None = None
    find_abilities: Callable[[], StoreAbilities] = StoreAbilities


def open_stores(settings: Settings, metrics: Metrics) -> Stores:
    """The store of these settings: the bucket where one is named, else the data directory. Connects to nothing yet."""
    if settings.s3.bucket is None:
        return Stores(measured(FileSystemBlobStore(objects_directory(settings)), metrics))
    from shardkeep_service.blob_store.s3.opening import open_s3  # boto3 takes a third of a second to import

    parts = open_s3(settings.s3, storage_threads=settings.storage_threads)
    retrying = RetryingBlobStore(
        parts.store,
        RetryPolicy(window_seconds=settings.s3.retry_seconds),
        on_retry=lambda operation: metrics.store_retries.labels(operation).inc(),
    )
    return Stores(measured(retrying, metrics), parts.presigner, parts.abilities)


def objects_directory(settings: Settings) -> Path:
    """Where the file-system store keeps its objects."""
    return settings.data_dir / _OBJECTS


def remove_leftovers(settings: Settings, *, older_than_seconds: float) -> int:
    """Removes what killed writes left in the file-system store and gives the count; S3 keeps no such thing."""
    if settings.s3.bucket is not None:
        return 0
    return FileSystemBlobStore(objects_directory(settings)).remove_incoming(older_than_seconds=older_than_seconds)
