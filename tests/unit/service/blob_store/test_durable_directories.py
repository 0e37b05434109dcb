"""Directories become durable with as few fsyncs as is safe."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from shardkeep_service.blob_store import durable_directories
from shardkeep_service.blob_store.durable_directories import DurableDirectories
from tests.waiting import wait_until


class CountingSync:
    """Stands for the fsync of a directory; slow, so that callers meet."""

    def __init__(self, seconds: float) -> None:
        self.began: list[float] = []
        self._seconds = seconds

    def __call__(self, directory: Path) -> None:
        self.began.append(time.monotonic())
        time.sleep(self._seconds)


def test_threads_that_wait_together_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories, begun = DurableDirectories(), []

    def sync_once_all_wait(directory: Path) -> None:
        begun.append(directory)
        if len(begun) == 1:
            wait_until(lambda: directories._turns[directory].waiting == len(threads))

    monkeypatch.setattr(durable_directories, "_fsync_directory", sync_once_all_wait)
    threads = [threading.Thread(target=directories.sync, args=(tmp_path,)) for _ in range(20)]
    threads[0].start()
    wait_until(lambda: begun)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 2, "one that was under way, and one for all who came meanwhile"


def test_nobody_returns_before_a_sync_that_began_after_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = CountingSync(0.03)
    monkeypatch.setattr(durable_directories, "_fsync_directory", counting)
    directories = DurableDirectories()
    called: list[tuple[float, float]] = []

    def sync(after: float) -> None:
        time.sleep(after)
        begin = time.monotonic()
        directories.sync(tmp_path)
        called.append((begin, time.monotonic()))

    threads = [threading.Thread(target=sync, args=(number * 0.01,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for begin, end in called:
        assert any(begin <= began and began + 0.03 <= end + 0.005 for began in counting.began)


def test_every_new_directory_has_its_entry_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable_directories, "_fsync_directory", synced.append)
    directories = DurableDirectories()
    directories.ensure(tmp_path / "a" / "b", root=tmp_path)
    directories.ensure(tmp_path / "a" / "c", root=tmp_path)
    directories.ensure(tmp_path / "a" / "c", root=tmp_path)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a"]
