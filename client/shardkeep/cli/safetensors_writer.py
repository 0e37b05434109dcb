"""Writing one safetensors file front to back without holding it: see docs/decisions/0007-safetensors-streaming.md."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from shardkeep.cli.safetensors_header import HeaderEntry, build_header


class SafetensorsWriter:
    """A file under a temporary name beside its own; `publish` gives it its name once every byte is on disk."""

    def __init__(self, path: Path, entries: Sequence[HeaderEntry], metadata: Mapping[str, str]) -> None:
        """`entries` lie one after the other in the order in which their bytes will be written."""
        header = build_header(entries, metadata)
        self.path = path
        self._expected_bytes = len(header) + (entries[-1].stop if entries else 0)
        self._file = TemporaryFile(path)
        self._file.write(memoryview(header))

    def write(self, data: memoryview) -> None:
        """Append the next bytes of the data."""
        self._file.write(data)

    def finish(self) -> None:
        """Put what was written on disk; still under the temporary name. ValueError if bytes are missing."""
        if self._file.size_bytes != self._expected_bytes:
            raise ValueError(f"{self._file.size_bytes} bytes were written and the header says {self._expected_bytes}")
        self._file.finish()

    def publish(self) -> None:
        """Give the finished file its name."""
        self._file.publish()

    def discard(self) -> None:
        """Remove what was written; nothing after `publish`."""
        self._file.discard()


class TemporaryFile:
    """A new file beside `path` that gets that name when it is whole and on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        self._temporary: Path | None = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._temporary, flags, 0o666)

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        while data:
            count = os.write(self._descriptor, data)
            self.size_bytes += count
            data = data[count:]

    def finish(self) -> None:
        """Put the bytes on disk."""
        os.fsync(self._descriptor)
        self._close()

    def publish(self) -> None:
        """Rename to the final name, replacing what has it."""
        assert self._temporary is not None  # published once
        self._temporary.replace(self.path)
        self._temporary = None

    def discard(self) -> None:
        """Remove the file unless it was published."""
        self._close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sync_directory(path: Path) -> None:
    """Put the names in a directory on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
