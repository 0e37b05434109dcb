"""One rank's scratch file: room beyond memory, without a name, so that nothing is left of it when the process ends.

It is no durable state: nothing is ever synced. Reads and writes are the kernel's buffered ones, so mapped memory shows
the same bytes. What is read and written there, and when, is in `tile_traffic`.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch

from shardkeep.errors import ConfigurationError, ShardkeepError, StateError


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of the file."""

    offset: int
    size_bytes: int

    def part(self, start: int, size_bytes: int) -> Span:
        """Some of it."""
        return Span(self.offset + start, size_bytes)


class ScratchFile:
    """A file of this process. Reads and writes may come from several threads; the rest from one."""

    def __init__(self, directory: str | PathLike[str], *, rank: int, keeps_pages: bool = False) -> None:
        """ConfigurationError for a directory in which no file can be made. `keeps_pages`: in the kernel's cache."""
        self._directory = Path(directory)
        self._keeps_pages = keeps_pages
        self._fd = _open(self._directory, rank)
        self._closer = weakref.finalize(self, os.close, self._fd)
        self._end = 0
        self._free: dict[int, list[Span]] = {}
        self._mapping: mmap.mmap | None = None
        self._is_seen = False

    @property
    def size_bytes(self) -> int:
        """What it takes of the disk."""
        return self._end

    def allocate(self, size_bytes: int) -> Span:
        """Room of whole pages, really on the disk: StateError if there is none left."""
        room = rounded_up(size_bytes, mmap.PAGESIZE)
        if self._free.get(room):
            return Span(self._free[room].pop().offset, size_bytes)
        offset = self._end
        if room:
            try:
                os.posix_fallocate(self._fd, offset, room)
            except OSError as exc:
                raise self._failed(exc, f"making room for {room} bytes after {offset}") from exc
        self._end += room
        return Span(offset, size_bytes)

    def free(self, span: Span) -> None:
        """Takes room back, for a span of the same size."""
        room = rounded_up(span.size_bytes, mmap.PAGESIZE)
        if room:
            self._free.setdefault(room, []).append(span)

    def read(self, offset: int, out: memoryview) -> None:
        """Fills `out`; StateError if the file ends before."""
        done = 0
        while done < len(out):
            try:
                count = os.preadv(self._fd, [out[done:]], offset + done)
            except OSError as exc:
                raise self._failed(exc, f"reading {len(out)} bytes at {offset}") from exc
            if count == 0:
                raise StateError(
                    f"a scratch file in {self._directory} ends at byte {offset + done}, inside {len(out)} bytes at"
                    f" {offset}: something outside cut it. Load the last checkpoint in a new process"
                )
            done += count
        self._forget_pages(offset, done)

    def write(self, offset: int, data: memoryview) -> None:
        """Writes all of `data`."""
        done = 0
        while done < len(data):
            try:
                done += os.pwritev(self._fd, [data[done:]], offset + done)
            except OSError as exc:
                raise self._failed(exc, f"writing {len(data)} bytes at {offset}") from exc
        self._forget_pages(offset, done)

    def mapped(self, span: Span) -> torch.Tensor:
        """The bytes as live memory: what is written there is what `read` gives, and the other way round."""
        if span.size_bytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        if self._mapping is None or len(self._mapping) < self._end:
            try:
                self._mapping = mmap.mmap(self._fd, self._end)
            except (OSError, ValueError) as exc:
                raise StateError(f"a scratch file in {self._directory} cannot be mapped: {exc}") from exc
        self._is_seen = True
        return torch.frombuffer(self._mapping, dtype=torch.uint8, offset=span.offset, count=span.size_bytes)

    def forget_mapped(self) -> None:
        """Takes the pages that mapped memory was seen through out of this process; the memory stays good. Cheap if
        nothing was mapped since.
        """
        if self._mapping is not None and self._is_seen:
            self._mapping.madvise(mmap.MADV_DONTNEED)
            self._is_seen = False

    def close(self) -> None:
        """Gives the room back once no mapped memory is left. Idempotent."""
        self._mapping = None
        self._closer()

    def _forget_pages(self, offset: int, size_bytes: int) -> None:
        if size_bytes and not self._keeps_pages:
            os.posix_fadvise(self._fd, offset, size_bytes, os.POSIX_FADV_DONTNEED)

    def _failed(self, exc: OSError, doing: str) -> ShardkeepError:
        advice = ""
        if exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = ": the disk is full. Free some of it, or offload to a larger one, and load the last checkpoint"
        return StateError(f"{doing} of a scratch file in {self._directory} failed ({exc.strerror or exc}){advice}")


def _open(directory: Path, rank: int) -> int:
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise ConfigurationError(
            f"the scratch directory {directory} {what} on the host of rank {rank}: create it there, on the disk to use"
        )
    try:
        with tempfile.TemporaryFile(prefix=f"shardkeep-rank{rank}-", dir=directory, buffering=0) as file:
            return os.dup(file.fileno())
    except OSError as exc:
        raise ConfigurationError(
            f"rank {rank} cannot make a file in the scratch directory {directory} ({exc.strerror or exc})"
        ) from exc


def rounded_up(size_bytes: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-size_bytes // unit) * unit
