"""Version 1, byte for byte: what was written once must decode for ever. The files are never regenerated.

A file that is missing is written, for the day a feature gets its first golden bytes, and the test fails that once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.format.codecs import Codec, decode_segment, encode_segment
from shardkeep.format.index import build_index, decode_index, encode_index
from shardkeep.format.manifest import decode_manifest, encode_manifest
from shardkeep.format.values import decode_value, encode_value
from tests.unit.format.builders import golden_manifest, golden_value

GOLDEN = Path(__file__).parents[2] / "golden"


def golden_bytes(name: str, now: bytes) -> bytes:
    path = GOLDEN / name
    if not path.exists():
        path.write_bytes(now)
        pytest.fail(f"{path} was missing; it was written now: look at it and commit it")
    return path.read_bytes()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_manifests_of_version_1_decode(rank: int) -> None:
    expected = golden_manifest(rank)
    stored = golden_bytes(f"manifest-v1-rank{rank}.bin", encode_manifest(expected))

    decoded = decode_manifest(stored)

    assert list(decoded.slices()) == list(expected.slices())
    assert decoded.chunks() == expected.chunks()
    assert decoded.values == expected.values
    assert {name: str(value) for name, value in decoded.metrics.items()} == {"inf": "inf", "loss": "0.25", "nan": "nan"}
    assert decoded.environment == expected.environment
    assert decoded.content_digest() == expected.content_digest()
    assert decode_manifest(encode_manifest(decoded)).content_digest() == decoded.content_digest()


def test_the_content_digests_of_version_1_never_change() -> None:
    digests = "".join(f"{golden_manifest(rank).content_digest().hex()}\n" for rank in (0, 1))
    assert golden_bytes("content-digests-v1.txt", digests.encode()) == digests.encode()


def test_the_index_of_version_1_decodes() -> None:
    expected, problems = build_index([golden_manifest(rank) for rank in (0, 1)])
    assert problems == []

    decoded = decode_index(golden_bytes("index-v1.bin", encode_index(expected)))

    assert [decoded.tensor(name) for name in decoded.tensor_names] == [
        expected.tensor(name) for name in expected.tensor_names
    ]
    assert decoded.divergent_buffers == expected.divergent_buffers


def test_the_values_of_version_1_decode_and_encode_to_the_same_bytes() -> None:
    expected: Any = golden_value()
    stored = golden_bytes("value-v1.bin", encode_value(expected))
    assert encode_value(expected) == stored

    decoded: Any = decode_value(stored)

    assert list(map(repr, decoded)) == list(map(repr, expected))
    assert np.array_equal(decoded.pop(2.5), expected.pop(2.5))
    assert decoded == expected
    assert list(map(type, decoded.values())) == list(map(type, expected.values()))


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.PLANES])
def test_the_segments_of_version_1_decode(codec: Codec) -> None:
    raw = (np.arange(1024, dtype="<f4") / 8).tobytes()
    stored = golden_bytes(f"segment-v1-{codec.name.lower()}.bin", bytes(encode_segment(codec, memoryview(raw), 4).data))
    out = memoryview(bytearray(len(raw)))

    decode_segment(codec, stored, out, item_bytes=4)

    assert bytes(out) == raw
