"""The settings choose the store: the bucket where one is named, else the data directory. Neither is connected to."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from shardkeep_service.blob_store.blob_store import FileBacked
from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.blob_store.stores import objects_directory, open_stores, remove_leftovers
from shardkeep_service.observability.metrics import Metrics
from shardkeep_service.settings import Settings

NOWHERE = S3Settings(
    bucket="checkpoints",
    endpoint_url="http://127.0.0.1:1",
    access_key_id="id",
    secret_access_key=SecretStr("secret"),
    retry_seconds=0.2,
)


def test_without_a_bucket_objects_are_files_of_the_data_directory(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, s3=S3Settings(bucket=None))
    stores = open_stores(settings, Metrics())
    stores.blob_store.put("a/b", memoryview(b"x"))
    assert isinstance(stores.blob_store, FileBacked)
    assert stores.presigner is None
    assert stores.find_abilities() == StoreAbilities()
    assert [path.name for path in objects_directory(settings).rglob("b")] == ["b"]


def test_with_a_bucket_there_is_a_presigner_and_the_store_is_reached_when_it_is_used(tmp_path: Path) -> None:
    metrics = Metrics()
    stores = open_stores(Settings(data_dir=tmp_path, s3=NOWHERE), metrics)
    assert stores.presigner is not None
    assert stores.presigner.get("a/b", lifetime_seconds=60).url.startswith("http://127.0.0.1:1/checkpoints/a/b?")
    with pytest.raises(BlobStoreUnavailable, match="gave up after"):
        stores.blob_store.size("a/b")
    with pytest.raises(BlobStoreUnavailable):
        stores.find_abilities()
    retried = metrics.registry.get_sample_value("shardkeep_store_retries_total", {"operation": "size"})
    assert retried is not None
    assert retried >= 1
    labels = {"operation": "size", "result": "unavailable"}
    assert metrics.registry.get_sample_value("shardkeep_store_operation_duration_seconds_count", labels) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_killed_writes_left_is_removed_where_objects_are_files(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, s3=S3Settings(bucket=None))
    open_stores(settings, Metrics())
    (objects_directory(settings) / "incoming" / "half").write_bytes(b"x")
    assert remove_leftovers(settings, older_than_seconds=3600) == 0
    assert remove_leftovers(settings, older_than_seconds=0) == 1
    assert remove_leftovers(Settings(data_dir=tmp_path, s3=NOWHERE), older_than_seconds=0) == 0
