"""Reading small objects of the bucket whole, and records among them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue.records import decode_record

AnyRecord = TypeVar("AnyRecord", bound=msgspec.Struct)


def read_object(blob_store: BlobStore, key: str, *, size_bytes: int | None = None) -> memoryview:
    """All bytes of an object; BlobMissing when there is none. Where the size is known it saves a request."""
    size = blob_store.size(key) if size_bytes is None else size_bytes
    if size is None:
        raise BlobMissing(f"there is no {key}")
    body = memoryview(bytearray(size))
    blob_store.read_into(key, 0, body)
    return body


def read_record(blob_store: BlobStore, key: str, kind: type[AnyRecord], *, size_bytes: int | None = None) -> AnyRecord:
    """A stored record; FormatError when it is damaged, BlobMissing when it is gone."""
    return decode_record(read_object(blob_store, key, size_bytes=size_bytes), kind)
