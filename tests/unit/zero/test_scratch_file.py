"""The scratch file: leaves nothing behind, says what is wrong with its directory or disk, and reads what it wrote."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.zero.scratch_file import ScratchFile, Span


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ScratchFile]:
    made = ScratchFile(tmp_path, rank=0)
    yield made
    made.close()


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """As on a disk that has no more room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def in_small_steps(move: Callable[[int, Sequence[memoryview], int], int]) -> Callable[..., int]:
    """As a disk that moves seven bytes at a time."""
    return lambda fd, views, offset: move(fd, [views[0][:7]], offset)


def test_it_has_no_name_in_its_directory(tmp_path: Path, file: ScratchFile) -> None:
    file.allocate(10)

    assert list(tmp_path.iterdir()) == []


def test_what_was_written_is_read(file: ScratchFile) -> None:
    first, second = file.allocate(5000), file.allocate(3)
    file.write(first.offset, memoryview(bytes(range(200)) * 25))
    file.write(second.offset, memoryview(b"end"))

    out = bytearray(5000)
    file.read(first.offset, memoryview(out))

    assert bytes(out) == bytes(range(200)) * 25
    assert second.offset % 4096 == 0


def test_short_reads_and_writes_go_on(file: ScratchFile, monkeypatch: pytest.MonkeyPatch) -> None:
    span = file.allocate(100)
    monkeypatch.setattr(os, "preadv", in_small_steps(os.preadv))
    monkeypatch.setattr(os, "pwritev", in_small_steps(os.pwritev))
    file.write(span.offset, memoryview(bytes(range(100))))

    out = bytearray(100)
    file.read(span.offset, memoryview(out))

    assert bytes(out) == bytes(range(100))


def test_mapped_memory_and_reads_show_the_same_bytes(file: ScratchFile) -> None:
    span = file.allocate(8)
    file.write(span.offset, memoryview(b"01234567"))

    mapped = file.mapped(span)
    before = bytes(mapped.numpy())
    mapped[0] = ord("x")
    file.forget_mapped()
    out = bytearray(8)
    file.read(span.offset, memoryview(out))

    assert before == b"01234567"
    assert bytes(out) == b"x1234567"
    assert bytes(mapped.numpy()) == b"x1234567"


def test_memory_mapped_before_the_file_grew_stays_good(file: ScratchFile) -> None:
    mapped = file.mapped(file.allocate(8))
    mapped.fill_(7)

    other = file.mapped(file.allocate(8))
    file.close()

    assert mapped.tolist() == [7] * 8
    assert other.tolist() == [0] * 8


def test_room_that_was_given_back_is_used_again(file: ScratchFile) -> None:
    first = file.allocate(5000)
    file.free(first)

    assert file.allocate(6000) == Span(first.offset, 6000)
    assert file.size_bytes == 8192


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"scratch directory .*/nowhere does not exist on the host of rank 3"):
        ScratchFile(tmp_path / "nowhere", rank=3)


def test_a_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")

    with pytest.raises(ConfigurationError, match="plain is not a directory"):
        ScratchFile(tmp_path / "plain", rank=0)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)

    with pytest.raises(ConfigurationError, match=r"rank 1 cannot make a file .* \(Permission denied\)"):
        ScratchFile(tmp_path, rank=1)


def test_a_full_disk_is_said_when_room_is_made(file: ScratchFile) -> None:
    with largest_file(8192), pytest.raises(StateError, match=r"making room for 12288 bytes .*the disk is full"):
        file.allocate(10_000)

    assert file.size_bytes == 0


def test_a_full_disk_is_said_when_it_is_written(file: ScratchFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)

    with pytest.raises(StateError, match=r"writing 3 bytes at 0 .*No space left on device.*the disk is full"):
        file.write(0, memoryview(b"abc"))


def test_a_file_that_was_cut_is_said(file: ScratchFile) -> None:
    span = file.allocate(4096)

    with pytest.raises(StateError, match="ends at byte 4096, inside 10 bytes at 4090: something outside cut it"):
        file.read(span.offset + 4090, memoryview(bytearray(10)))


def test_many_files_leave_no_descriptors(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        ScratchFile(tmp_path, rank=0).mapped(Span(0, 0))

    assert len(list(Path("/proc/self/fd").iterdir())) == before
