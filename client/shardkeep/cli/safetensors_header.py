"""The header of a safetensors file: read, checked and built. Reading and writing tensors is in reader and writer.

A file is: the header's length (u64, little-endian), the header (JSON: name -> dtype, shape, data_offsets, and texts
under `__metadata__`), then the tensors' bytes, one after the other without gaps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from shardkeep.cli.safetensors_dtypes import item_bits, stored_tensor
from shardkeep.errors import FormatError

LENGTH_BYTES: Final = 8
MAX_HEADER_BYTES: Final = 100_000_000
"""The reference implementation's limit."""
METADATA_KEY: Final = "__metadata__"
_ALIGNMENT = 8
_MAX_FILE_BYTES = 1 << 63


@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """One tensor as the header names it: `code` is safetensors' dtype, the bytes are `start` to `stop` of the data."""

    name: str
    code: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header: entries in the order of their bytes; `data_start` is where in the file the data begins."""

    entries: tuple[HeaderEntry, ...]
    metadata: dict[str, str]
    data_start: int


def parse_length(data: bytes, file_bytes: int) -> int:
    """The header's length from a file's first 8 bytes; FormatError if such a header cannot be in the file."""
    if len(data) < LENGTH_BYTES:
        raise FormatError(f"{file_bytes} bytes are too few for a safetensors file")
    length = int.from_bytes(data, "little")
    if length > MAX_HEADER_BYTES:
        raise FormatError(
            f"a header of {length} bytes is above the limit of {MAX_HEADER_BYTES}; this is no safetensors file"
        )
    if LENGTH_BYTES + length > file_bytes:
        raise FormatError(f"the file ends within its header: {length} bytes of header, {file_bytes} bytes of file")
    return length


def parse_header(data: bytes, file_bytes: int) -> Header:
    """The header in `data`, checked against the file's size; FormatError names the tensor that is wrong."""
    document = _load_json(data)
    metadata = _metadata(document.pop(METADATA_KEY, {}))
    entries = sorted((_entry(name, fields) for name, fields in document.items()), key=_position)
    data_start = LENGTH_BYTES + len(data)
    _check_offsets(entries, file_bytes - data_start)
    return Header(tuple(entries), metadata, data_start)


def build_header(entries: Sequence[HeaderEntry], metadata: Mapping[str, str]) -> bytes:
    """Length and header for these entries, padded so that the data is aligned; FormatError above the size limit."""
    document: dict[str, object] = {METADATA_KEY: dict(metadata)} if metadata else {}
    for entry in entries:
        document[entry.name] = {"dtype": entry.code, "shape": entry.shape, "data_offsets": (entry.start, entry.stop)}
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    data += b" " * (-len(data) % _ALIGNMENT)
    if len(data) > MAX_HEADER_BYTES:
        raise FormatError(
            f"{len(entries)} tensors need a header of {len(data)} bytes and safetensors allows {MAX_HEADER_BYTES}: "
            "write smaller shards with --max-shard-size"
        )
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def _load_json(data: bytes) -> dict[str, Any]:
    if not data.startswith(b"{"):
        raise FormatError("the header does not begin with '{'; this is no safetensors file")
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as exc:
        raise FormatError(f"the header is not JSON: {exc}") from exc
    assert isinstance(document, dict)  # it begins with a brace
    return document


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"the header names {repeated!r} twice")
    return found


def _metadata(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise FormatError(f"{METADATA_KEY} is not a map of texts")
    return found


def _entry(name: str, fields: object) -> HeaderEntry:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str):
        raise FormatError(f"tensor {name!r} has the dtype {code!r}")
    if not _are_sizes(shape):
        raise FormatError(f"tensor {name!r} has the shape {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(f"tensor {name!r} has the data_offsets {offsets!r}")
    _check_size(name, code, shape, offsets[1] - offsets[0])
    return HeaderEntry(name, code, tuple(shape), offsets[0], offsets[1])


def _are_sizes(found: object) -> bool:
    return isinstance(found, list) and all(type(size) is int and 0 <= size < _MAX_FILE_BYTES for size in found)


def _check_size(name: str, code: str, shape: list[int], size_bytes: int) -> None:
    bits = prod(shape) * item_bits(name, code)
    if bits != size_bytes * 8:
        raise FormatError(
            f"tensor {name!r} has {size_bytes} bytes in the file and {code} of shape {shape} needs {bits / 8:g}"
        )
    stored_tensor(name, code, tuple(shape))


def _position(entry: HeaderEntry) -> tuple[int, int]:
    return entry.start, entry.stop


def _check_offsets(entries: list[HeaderEntry], data_bytes: int) -> None:
    end, previous = 0, "the header"
    for entry in entries:
        if entry.start < end:
            raise FormatError(f"tensors {previous!r} and {entry.name!r} overlap in the file at byte {entry.start}")
        if entry.start > end:
            raise FormatError(f"{entry.start - end} bytes before tensor {entry.name!r} belong to no tensor")
        end, previous = entry.stop, entry.name
    if end > data_bytes:
        raise FormatError(f"the file is cut short: its tensors need {end} bytes of data and it has {data_bytes}")
    if end < data_bytes:
        raise FormatError(f"{data_bytes - end} bytes at the end of the file belong to no tensor")
