from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from shardkeep.errors import IntegrityError
from shardkeep.format.codecs import Codec, decode_segment, encode_segment
from shardkeep.format.dtypes import DTYPE_NAMES, dtype_coded, dtype_named, numpy_dtype
from shardkeep.format.segments import SEGMENT_BYTES, segment_count, segment_sizes
from tests.unit.format.builders import ChunkShelf, floats, manifest_of

CODECS = list(Codec)


def _decoded(codec: Codec, data: bytes | memoryview, size: int, item_bytes: int) -> bytes:
    out = memoryview(bytearray(size))
    decode_segment(codec, data, out, item_bytes=item_bytes)
    return bytes(out)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_every_dtype_round_trips_through_every_codec(name: str, codec: Codec) -> None:
    item_bytes = dtype_named(name).item_bytes
    for raw in (floats(4096).tobytes(), bytes(8192), b"\x01" * item_bytes, b""):
        used, data = encode_segment(codec, memoryview(raw), item_bytes)
        assert len(data) <= len(raw)
        assert _decoded(used, data, len(raw), item_bytes) == raw


def test_float_weights_shrink_by_their_exponents() -> None:
    raw = memoryview((floats(SEGMENT_BYTES // 4) * 0.02).astype("<f4").tobytes())
    used, data = encode_segment(Codec.PLANES, raw, 4)
    assert used is Codec.PLANES
    assert len(data) < 0.87 * len(raw)


def test_what_does_not_shrink_is_given_back_uncopied() -> None:
    raw = memoryview(np.random.default_rng(0).bytes(4096))
    for codec in CODECS:
        used, data = encode_segment(codec, raw, 4)
        assert used is Codec.RAW
        assert data is raw


def test_a_segment_that_is_no_whole_number_of_items_falls_back() -> None:
    raw = memoryview(bytes(1001))
    used, data = encode_segment(Codec.PLANES, raw, 4)
    assert used is Codec.ZSTD
    assert _decoded(used, data, 1001, 4) == bytes(raw)


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 64), st.sampled_from([1, 2, 4, 8]))
def test_garbage_is_an_integrity_error(codec: Codec, garbage: bytes, size: int, item_bytes: int) -> None:
    try:
        _decoded(codec, garbage, size, item_bytes)
    except IntegrityError:
        return
    assert codec is Codec.RAW or len(garbage) > 0


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.PLANES])
@given(data=st.data())
@example(data=None).via("shortest damage")
def test_damaged_segments_never_raise_anything_else(codec: Codec, data: st.DataObject | None) -> None:
    raw = memoryview((np.arange(512, dtype="<f4") / 7).tobytes())
    used, encoded = encode_segment(codec, raw, 4)
    assert used is codec
    damaged = bytearray(encoded)
    position = data.draw(st.integers(0, len(damaged) - 1)) if data else 0
    damaged[position] ^= data.draw(st.integers(1, 255)) if data else 1
    for candidate in (bytes(damaged), bytes(encoded[:position]), bytes(encoded) + b"x"):
        try:
            _decoded(used, candidate, len(raw), 4)
        except IntegrityError:
            continue


def test_a_bomb_is_refused_before_it_is_allocated() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(100 << 20))
    with pytest.raises(IntegrityError, match="declares"):
        _decoded(Codec.ZSTD, bomb, 1024, 1)


def test_a_wrong_length_is_refused() -> None:
    raw = memoryview(bytes(4096))
    for codec in CODECS:
        used, data = encode_segment(codec, raw, 4)
        for size in (4092, 4100, 0):
            with pytest.raises(IntegrityError):
                _decoded(used, data, size, 4)


def test_segments_are_cut_at_fixed_offsets() -> None:
    whole = SEGMENT_BYTES
    for raw_bytes, sizes in ((0, ()), (1, (1,)), (whole, (whole,)), (whole + 1, (whole, 1))):
        assert segment_sizes(raw_bytes) == sizes
        assert segment_count(raw_bytes) == len(sizes)


@pytest.mark.parametrize("name", ["float8_e8m0fnu", "float4_e2m1fn_x2"])
@pytest.mark.parametrize("shape", [(3,), (2, 4), (0,)])
def test_E122_packed_and_exponent_only_dtypes_keep_stored_shape_and_bytes(name: str, shape: tuple[int, ...]) -> None:
    stored = np.arange(int(np.prod(shape)), dtype=np.uint8).reshape(shape) + 200
    record = ChunkShelf().slice_of("w", stored, dtype=name)

    (read,) = manifest_of([record], world_size=1).slices()

    assert (read.dtype, read.shape, read.segments) == (name, shape, record.segments)
    assert dtype_named(name).item_bytes == 1
    assert numpy_dtype(name) is None


def test_dtype_codes_are_stable() -> None:
    assert [dtype_named(name).code for name in DTYPE_NAMES] == list(range(1, 23))
    assert all(dtype_coded(dtype_named(name).code).name == name for name in DTYPE_NAMES)
    assert dtype_named("bool").code == 22
    assert numpy_dtype("float32") == np.dtype("<f4")
