"""The blob store on a file system keeps the contract, and its own promises about crashes and full disks."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardkeep_service.blob_store.blob_store import BlobStore, FileBacked
from shardkeep_service.blob_store.errors import BlobMissing, BlobStoreUnavailable
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from tests.contracts.blob_store_contract import BlobStoreContract


class TestFileSystemBlobStore(BlobStoreContract):
    def make_store(self, directory: Path) -> BlobStore:
        return FileSystemBlobStore(directory / "blobs")

    @pytest.mark.parametrize("size", [1 << 20, (2 << 20) + 4095, (2 << 20) + 1])
    def test_page_aligned_memory_is_written_past_the_cache_and_whole(self, store: BlobStore, size: int) -> None:
        buffer = mmap.mmap(-1, size)
        buffer[:] = os.urandom(size)
        store.put("a/b", memoryview(buffer))
        out = memoryview(bytearray(size))
        store.read_into("a/b", 0, out)
        assert out == memoryview(buffer)

    def test_an_object_is_a_file_that_the_kernel_can_send(self, store: BlobStore) -> None:
        store.put("a/b", memoryview(b"hello"))
        assert isinstance(store, FileBacked)
        with store.opened("a/b", reaching=5) as descriptor:
            assert os.pread(descriptor, 9, 0) == b"hello"
        with pytest.raises(BlobMissing, match="5"), store.opened("a/b", reaching=6):
            pass


def test_a_put_leaves_no_temporary_file(tmp_path: Path) -> None:
    store = FileSystemBlobStore(tmp_path)
    store.put("a/b", memoryview(b"x"))
    store.put("a/b", memoryview(b"x"))
    assert list((tmp_path / "incoming").iterdir()) == []


def test_what_a_crash_left_half_written_is_removed_and_the_objects_stay(tmp_path: Path) -> None:
    FileSystemBlobStore(tmp_path).put("a/b", memoryview(b"x"))
    (tmp_path / "incoming" / "0123").write_bytes(b"half")
    store = FileSystemBlobStore(tmp_path)
    assert store.remove_incoming() == 1
    assert [info.key for info in store.list("")] == ["a/b"]


def test_deleting_the_last_object_removes_its_directory(tmp_path: Path) -> None:
    store = FileSystemBlobStore(tmp_path)
    store.put("a/b/c", memoryview(b"x"))
    store.delete(["a/b/c"])
    assert not (tmp_path / "objects" / "a" / "b").exists()


def test_a_store_that_cannot_be_read_is_unavailable_and_not_missing(tmp_path: Path) -> None:
    store = FileSystemBlobStore(tmp_path)
    store.put("a", memoryview(b"x"))
    with pytest.raises(BlobStoreUnavailable):
        store.put("a/b", memoryview(b"x"))


def test_a_full_disk_is_full_and_leaves_nothing(tmp_path: Path) -> None:
    """A process whose files may have at most 2 MiB meets the same errno family as a full disk, without filling one."""
    script = """
import resource, sys
from pathlib import Path
from shardkeep_service.blob_store.errors import BlobStoreFull
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
store = FileSystemBlobStore(Path(sys.argv[1]))
try:
    store.put("a/big", memoryview(bytearray(3 << 20)))
except BlobStoreFull:
    assert store.size("a/big") is None and not list(Path(sys.argv[1], "incoming").iterdir())
    store.put("a/small", memoryview(b"fits"))
    print("full")
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "full\n", done.stderr
