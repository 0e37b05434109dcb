"""A blob store in a directory of a local file system.

An object is written to a temporary file beside the objects, synced, and linked to its name: the name appears whole or
not at all, and never replaces another. Temporary files of a crash are removed at the next start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from shardkeep_service.blob_store.blob_store import BlobInfo
from shardkeep_service.blob_store.durable_directories import DurableDirectories
from shardkeep_service.blob_store.errors import BlobExists, BlobMissing, BlobStoreFull, BlobStoreUnavailable
from shardkeep_service.blob_store.file_writes import write_synced
from shardkeep_service.blob_store.keys import check_key, check_keys, check_prefix

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_COMPARE_BYTES: Final = 1 << 20


class FileSystemBlobStore:
    """Implements `BlobStore` under `root`, which one service process owns."""

    def __init__(self, root: Path) -> None:
        self._objects = root / "objects"
        self._incoming = root / "incoming"
        self._directories = DurableDirectories()
        self._removing = threading.Lock()
        with _translated_errors(str(root)):
            for directory in (self._objects, self._incoming):
                directory.mkdir(parents=True, exist_ok=True)

    def remove_incoming(self, *, older_than_seconds: float = 0) -> int:
        """Removes what a crash left half written and gives the count.

        Where other processes write to the directory too, give an age that no write reaches.
        """
        until = time.time() - older_than_seconds
        leftovers = [path for path in self._incoming.iterdir() if _modified_at(path) <= until]
        for path in leftovers:
            path.unlink(missing_ok=True)
        return len(leftovers)

    def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:  # noqa: ARG002  (the contract's)
        """See BlobStore. Costs one fsync of the file and one, often shared, of each directory it is new in."""
        path = self._path(key)
        temporary = self._incoming / secrets.token_hex(16)
        with _translated_errors(key):
            try:
                write_synced(temporary, body)
                self._link(temporary, path)
            except FileExistsError:
                if not _holds(path, body):
                    raise BlobExists(f"{key} holds other bytes") from None
            finally:
                temporary.unlink(missing_ok=True)
            self._directories.sync(path.parent)

    def read_into(self, key: str, offset: int, out: memoryview) -> None:
        """See BlobStore."""
        with _translated_errors(key), _opened(self._path(key)) as descriptor:
            _check_reaches(key, descriptor, offset + len(out))
            _pread_into(descriptor, offset, out)

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        """See BlobStore. The object is opened at the first piece."""
        with _translated_errors(key), _opened(self._path(key)) as descriptor:
            _check_reaches(key, descriptor, offset + length)
            for start in range(offset, offset + length, piece_bytes):
                piece = os.pread(descriptor, min(piece_bytes, offset + length - start), start)
                yield memoryview(piece)

    @contextlib.contextmanager
    def opened(self, key: str, *, reaching: int) -> Iterator[int]:
        """See FileBacked."""
        with _translated_errors(key), _opened(self._path(key)) as descriptor:
            _check_reaches(key, descriptor, reaching)
            yield descriptor

    def size(self, key: str) -> int | None:
        """See BlobStore."""
        with _translated_errors(key):
            try:
                return self._path(key).stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def delete(self, keys: Sequence[str]) -> None:
        """See BlobStore. A lost delete after a crash leaves the object, which collection finds again."""
        check_keys(keys)
        for key in keys:
            path = self._path(key)
            with _translated_errors(key):
                path.unlink(missing_ok=True)
                self._remove_if_empty(path.parent)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore. Holds the names of one directory a level."""
        check_prefix(prefix)
        directory, _, _ = prefix.rpartition("/")
        start = self._objects / directory if directory else self._objects
        with _translated_errors(prefix):
            yield from _walk(start, f"{directory}/" if directory else "", prefix, after)

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._objects / key

    def _link(self, temporary: Path, path: Path) -> None:
        try:
            self._directories.ensure(path.parent, root=self._objects)
            os.link(temporary, path)
        except FileNotFoundError:  # a delete removed the empty directory in between; now none can
            with self._removing:
                self._directories.forget(path.parent)
                self._directories.ensure(path.parent, root=self._objects)
                os.link(temporary, path)

    def _remove_if_empty(self, directory: Path) -> None:
        if directory == self._objects:
            return
        with self._removing, contextlib.suppress(OSError):  # not empty, or already gone: both are fine
            self._directories.forget(directory)
            directory.rmdir()


@contextlib.contextmanager
def _translated_errors(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as exc:
        raise BlobMissing(f"there is no {what}") from exc
    except OSError as exc:
        if exc.errno in _NO_SPACE:
            raise BlobStoreFull(f"no space for {what}: {exc.strerror}") from exc
        raise BlobStoreUnavailable(f"{what}: {exc.strerror}") from exc


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_reaches(key: str, descriptor: int, end: int) -> None:
    size = os.fstat(descriptor).st_size
    if end > size:
        raise BlobMissing(f"{key} has {size} bytes, needed {end}")


def _pread_into(descriptor: int, offset: int, out: memoryview) -> None:
    done = 0
    while done < len(out):
        count = os.preadv(descriptor, [out[done:]], offset + done)
        if not count:
            raise BlobMissing(f"the object ends at {offset + done} bytes")
        done += count


def _holds(path: Path, body: memoryview) -> bool:
    with _opened(path) as descriptor:
        if os.fstat(descriptor).st_size != len(body):
            return False
        starts = range(0, len(body), _COMPARE_BYTES)
        return all(os.pread(descriptor, _COMPARE_BYTES, at) == body[at : at + _COMPARE_BYTES] for at in starts)


def _walk(directory: Path, parent: str, prefix: str, after: str) -> Iterator[BlobInfo]:
    """Objects below `directory` whose key begins with `prefix` and is beyond `after`; `parent` is the key of the
    directory with its slash.
    """
    for name, is_directory in _sorted_entries(directory):
        key = f"{parent}{name}"
        if is_directory:
            if (key.startswith(prefix) or prefix.startswith(key)) and (key > after or after.startswith(key)):
                yield from _walk(directory / name, key, prefix, after)
        elif key.startswith(prefix) and key > after:
            with contextlib.suppress(FileNotFoundError):  # deleted while we list
                yield BlobInfo(key, (directory / name).stat().st_size)


def _sorted_entries(directory: Path) -> list[tuple[str, bool]]:
    """Names in key order: a directory sorts with its slash."""
    try:
        with os.scandir(directory) as entries:
            names = [(f"{entry.name}/", True) if entry.is_dir() else (entry.name, False) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names)


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has just finished with it
        return float("inf")
