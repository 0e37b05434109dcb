"""The blob store in memory keeps the contract."""

from __future__ import annotations

from pathlib import Path

from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.memory import MemoryBlobStore
from tests.contracts.blob_store_contract import BlobStoreContract


class TestMemoryBlobStore(BlobStoreContract):
    def make_store(self, directory: Path) -> BlobStore:
        return MemoryBlobStore()
