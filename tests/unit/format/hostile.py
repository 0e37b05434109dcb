"""Changes behind the checksums, as a hostile writer would make them: columns of a container, altered and repacked."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from shardkeep.format.container import Container, pack_container

ODD = [-1, 0, 1, 1 << 62, (1 << 64) - 1, "x", None, [], b"\x08" + b"\xff" * 8, b"\x01"]


def altered(stored: bytes, section_count: int, data: st.DataObject) -> bytes:
    """One to three altered columns in any section of a container."""
    box = Container(stored, magic=stored[:4], section_count=section_count, max_raw_bytes=1 << 30)
    sections = [_fields(box.section(row)) for row in range(section_count)]
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, section_count - 1))
        fields = sections[row]
        if isinstance(fields, bytes):
            sections[row] = _changed(fields, data)
            continue
        path = data.draw(st.sampled_from(_leaves(fields)))
        for key in path[:-1]:
            fields = fields[key]
        value = fields[path[-1]]
        keeps_type = isinstance(value, bytes) and value and data.draw(st.booleans())
        fields[path[-1]] = _changed(value, data) if keeps_type else data.draw(st.sampled_from(ODD))
    packed = [part if isinstance(part, bytes) else msgspec.msgpack.encode(part) for part in sections]
    return pack_container(stored[:4], packed, level=1)


def _fields(section: memoryview) -> Any:
    try:
        fields = msgspec.msgpack.decode(section)
    except msgspec.DecodeError:
        return bytes(section)
    return fields if isinstance(fields, dict) else bytes(section)


def _changed(value: bytes, data: st.DataObject) -> bytes:
    changed = bytearray(value)
    at = data.draw(st.integers(0, len(changed)))
    changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=9))
    return bytes(changed)


def _leaves(fields: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in fields.items():
        found += _leaves(value, (*path, key)) if isinstance(value, dict) and value else [(*path, key)]
    return found
