"""Operations are counted by their name and how they ended, with the bytes they moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep_service.blob_store.blob_store import BlobStore, FileBacked
from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreError,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
)
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.blob_store.measured import measured, result_of
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.observability.metrics import Metrics
from tests.contracts.blob_store_contract import BlobStoreContract
from tests.faulty_blob_store import FaultyBlobStore


class TestMeasuredBlobStore(BlobStoreContract):
    def make_store(self, directory: Path) -> BlobStore:
        return measured(MemoryBlobStore(), Metrics())


def count(metrics: Metrics, operation: str, result: str) -> float | None:
    name = "shardkeep_store_operation_duration_seconds_count"
    return metrics.registry.get_sample_value(name, {"operation": operation, "result": result})


def moved(metrics: Metrics, operation: str) -> float | None:
    name = "shardkeep_store_operation_bytes_total"
    return metrics.registry.get_sample_value(name, {"operation": operation})


def test_operations_and_bytes_are_counted() -> None:
    metrics = Metrics()
    store = measured(MemoryBlobStore(), metrics)
    store.put("a", memoryview(bytes(100)))
    store.read_into("a", 10, memoryview(bytearray(30)))
    assert sum(len(piece) for piece in store.stream("a", 0, 100, piece_bytes=40)) == 100
    store.size("a")
    store.delete(["a"])
    assert all(count(metrics, name, "ok") == 1 for name in ("put", "read_into", "stream", "size", "delete"))
    assert [moved(metrics, name) for name in ("put", "read_into", "stream")] == [100, 30, 100]


def test_failures_are_counted_by_their_kind_and_move_no_bytes() -> None:
    metrics, faulty = Metrics(), FaultyBlobStore(MemoryBlobStore())
    store = measured(faulty, metrics)
    faulty.fail("put", BlobStoreUnavailable("no", throttled=True))
    with pytest.raises(BlobStoreUnavailable):
        store.put("a", memoryview(bytes(100)))
    with pytest.raises(BlobMissing):
        list(store.stream("never", 0, 1, piece_bytes=1))
    assert count(metrics, "put", "throttled") == 1
    assert count(metrics, "stream", "missing") == 1
    assert moved(metrics, "put") is None


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (BlobMissing("x"), "missing"),
        (BlobExists("x"), "exists"),
        (BlobStoreFull("x"), "full"),
        (BlobStoreRefused("x"), "refused"),
        (BlobStoreUnavailable("x"), "unavailable"),
        (BlobStoreUnavailable("x", throttled=True), "throttled"),
    ],
)
def test_every_kind_of_error_has_a_label(error: BlobStoreError, result: str) -> None:
    assert result_of(error) == result
    assert {type(error)} <= set(BlobStoreError.__subclasses__())


def test_a_store_of_files_stays_one(tmp_path: Path) -> None:
    metrics = Metrics()
    store = measured(FileSystemBlobStore(tmp_path), metrics)
    store.put("a", memoryview(b"x"))
    assert isinstance(store, FileBacked)
    with store.opened("a", reaching=1):
        pass
    assert count(metrics, "open", "ok") == 1
    assert not isinstance(measured(MemoryBlobStore(), metrics), FileBacked)
