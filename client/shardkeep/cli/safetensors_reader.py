"""One safetensors file, read a piece at a time. Directories of them are in `safetensors_source`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shardkeep.cli.safetensors_header import LENGTH_BYTES, Header, HeaderEntry, parse_header, parse_length
from shardkeep.cli.safetensors_metadata import FileNotes
from shardkeep.errors import FormatError


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor of a file with its true dtype and shape; its bytes are `size_bytes` from `position` on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    position: int
    size_bytes: int


class SafetensorsFile:
    """An open file whose header is checked. `tensors` are in the order of their bytes; `close` it after use."""

    def __init__(self, path: Path) -> None:
        """FormatError names the file and what is wrong with it; OSError if it cannot be opened."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = _read_header(self._descriptor)
            self.metadata = header.metadata
            self.notes = FileNotes.parse(header.metadata)
            self.tensors = tuple(_tensor(self.notes, entry, header.data_start) for entry in header.entries)
        except FormatError as exc:
            self.close()
            raise FormatError(f"{path}: {exc}") from exc
        except BaseException:
            self.close()
            raise

    def read_into(self, tensor: FileTensor, start: int, out: memoryview) -> None:
        """Fill `out` with the tensor's bytes from `start` on; FormatError if the file ends before that."""
        position = tensor.position + start
        while out:
            count = os.preadv(self._descriptor, [out], position)
            if count == 0:
                raise FormatError(f"{self.path}: the file was cut short while tensor {tensor.name!r} was read")
            out, position = out[count:], position + count

    def close(self) -> None:
        """Close the file; again is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read_header(descriptor: int) -> Header:
    file_bytes = os.fstat(descriptor).st_size
    length = parse_length(os.pread(descriptor, LENGTH_BYTES, 0), file_bytes)
    return parse_header(os.pread(descriptor, length, LENGTH_BYTES), file_bytes)


def _tensor(notes: FileNotes, entry: HeaderEntry, data_start: int) -> FileTensor:
    dtype, shape = notes.true_form(entry)
    return FileTensor(entry.name, dtype, shape, data_start + entry.start, entry.stop - entry.start)
