"""The blob store in S3 keeps the contract: in a bucket of its own, under a prefix, and behind its wrappers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.measured import measured
from shardkeep_service.blob_store.retrying import RetryingBlobStore
from shardkeep_service.observability.metrics import Metrics
from tests.contracts.blob_store_contract import PLAIN_KEYS, BlobStoreContract
from tests.integration.s3.buckets import Buckets

pytestmark = pytest.mark.s3


class S3Contract(BlobStoreContract):
    listed_keys: ClassVar[list[str]] = PLAIN_KEYS

    @pytest.fixture(autouse=True)
    def _take_buckets(self, buckets: Buckets) -> None:
        self.buckets = buckets


class TestS3BlobStore(S3Contract):
    @pytest.fixture(autouse=True)
    def _own_bucket(self, buckets: Buckets) -> Iterator[None]:
        self.bucket = buckets.server.new_bucket()
        yield
        buckets.server.remove_bucket(self.bucket)

    def make_store(self, directory: Path) -> BlobStore:
        return self.buckets.new_store(bucket=self.bucket, prefix="")


class TestS3BlobStoreUnderAPrefix(S3Contract):
    def make_store(self, directory: Path) -> BlobStore:
        return self.buckets.new_store()


class TestS3BlobStoreBehindItsWrappers(S3Contract):
    def make_store(self, directory: Path) -> BlobStore:
        return measured(RetryingBlobStore(self.buckets.new_store()), Metrics())
