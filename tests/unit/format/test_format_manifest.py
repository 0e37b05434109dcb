from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import FormatError, IntegrityError, VersionTooNew
from shardkeep.format import container
from shardkeep.format.chunks import MAX_CHUNK_BYTES, ChunkRef
from shardkeep.format.codecs import Codec
from shardkeep.format.container import Container, pack_container
from shardkeep.format.manifest import (
    Manifest,
    build_manifest,
    decode_manifest,
    decode_manifest_values,
    encode_manifest,
)
from shardkeep.format.manifest_encoding import MANIFEST_MAGIC, MAX_MANIFEST_RAW_BYTES
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind, SliceRecord, ValueRecord
from tests.unit.format.builders import ChunkShelf, floats, manifest_of
from tests.unit.format.hostile import altered


def sample_slices() -> list[SliceRecord]:
    shelf = ChunkShelf()
    big = floats(2, SEGMENT_BYTES // 4)
    return [
        shelf.slice_of("model.weight", big, codec=Codec.PLANES),
        shelf.slice_of("model.bias", floats(8), Region((2,), (3,))),
        shelf.slice_of("model.bias", floats(8), Region((5,), (3,)), witness=True),
        shelf.slice_of("model.bias", floats(8), Region((0,), (0,))),
        shelf.slice_of("model.grid", floats(4, 6), Region((2, 0), (2, 3)), kind=SliceKind.OPTIMIZER),
        shelf.slice_of("model.grid", floats(4, 6), Region((0, 3), (2, 3)), kind=SliceKind.OPTIMIZER),
        shelf.slice_of("scalar", np.array(1.5), kind=SliceKind.BUFFER),
        shelf.slice_of("none", np.zeros((0, 3), "<i8"), kind=SliceKind.TENSOR),
        shelf.slice_of("caf\u00e9", np.arange(5, dtype="<u2"), kind=SliceKind.VALUE),
    ]


def sample_manifest() -> Manifest:
    return build_manifest(
        rank=1,
        world_size=4,
        step=99,
        slices=sample_slices(),
        values=[ValueRecord("b", b"\x01", True), ValueRecord("a", b"", False)],
        metrics={"loss": 0.5},
        environment={"torch": "2.13", "threads": 2, "ratio": 0.5, "on": True},
    )


def content(manifest: Manifest) -> tuple[Any, ...]:
    return (
        manifest.rank,
        manifest.world_size,
        manifest.step,
        tuple(manifest.slices()),
        manifest.values,
        manifest.metrics,
        manifest.environment,
        manifest.chunks(),
    )


def test_a_manifest_round_trips_in_canonical_order() -> None:
    manifest = sample_manifest()
    data = encode_manifest(manifest)

    decoded = decode_manifest(data)

    assert content(decoded) == content(manifest)
    assert list(decoded.slices()) == sorted(sample_slices(), key=lambda record: (record.name, record.region))
    assert [value.path for value in decoded.values] == ["a", "b"]
    assert decoded.content_digest() == manifest.content_digest()
    assert encode_manifest(decoded) == data


def test_a_rank_without_slices_has_a_manifest_too() -> None:
    manifest = manifest_of([])
    assert list(decode_manifest(encode_manifest(manifest)).slices()) == []
    assert manifest.chunks() == ()


def test_metrics_keep_every_bit() -> None:
    odd_nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]
    metrics = {"nan": odd_nan, "inf": float("-inf"), "zero": -0.0, "tiny": 5e-324}
    manifest = build_manifest(rank=0, world_size=1, step=0, slices=[], metrics=metrics)
    decoded = decode_manifest(encode_manifest(manifest)).metrics
    assert {name: struct.pack("<d", value) for name, value in decoded.items()} == {
        name: struct.pack("<d", value) for name, value in metrics.items()
    }


def test_content_is_independent_of_order_chunks_and_codecs() -> None:
    digests = {
        manifest_of(order).content_digest()
        for order in itertools.islice(itertools.permutations(sample_slices()), 0, 5000, 500)
    }
    assert len(digests) == 1
    weights = floats(64, 64) * 0.01
    raw, packed = (manifest_of([ChunkShelf().slice_of("w", weights, codec=codec)]) for codec in (Codec.RAW, Codec.ZSTD))
    assert raw.chunks() != packed.chunks()
    assert raw.content_digest() == packed.content_digest()


@pytest.mark.parametrize(
    "change",
    [
        lambda record: dataclasses.replace(record, name="other"),
        lambda record: dataclasses.replace(record, dtype="int32"),
        lambda record: dataclasses.replace(record, shape=(9, 6)),
        lambda record: dataclasses.replace(record, region=record.region.shifted((1, 0))),
        lambda record: dataclasses.replace(record, kind=SliceKind.FROZEN),
        lambda record: dataclasses.replace(record, witness=True, segments=()),
        lambda record: dataclasses.replace(record, witness=True, segments=(), fingerprints=(b"f" * 16,)),
    ],
)
def test_every_part_of_the_content_counts(change: Callable[[SliceRecord], SliceRecord]) -> None:
    record = ChunkShelf().slice_of("w", floats(8, 6), Region((2, 0), (4, 6)))
    assert manifest_of([record]).content_digest() != manifest_of([change(record)]).content_digest()


def test_step_world_size_and_values_count_and_rank_does_not() -> None:
    values = [ValueRecord("a", b"1", True)]
    base = build_manifest(rank=0, world_size=2, step=1, slices=[], values=values).content_digest()
    assert base == build_manifest(rank=1, world_size=2, step=1, slices=[], values=values).content_digest()
    for other in (
        build_manifest(rank=0, world_size=2, step=2, slices=[], values=values),
        build_manifest(rank=0, world_size=3, step=1, slices=[], values=values),
        build_manifest(rank=0, world_size=2, step=1, slices=[], values=[ValueRecord("a", b"2", True)]),
        build_manifest(rank=0, world_size=2, step=1, slices=[], values=[ValueRecord("a", b"1", False)]),
    ):
        assert other.content_digest() != base


def _with_segment(**changes: Any) -> Callable[[SliceRecord], SliceRecord]:
    return lambda record: dataclasses.replace(
        record, segments=(dataclasses.replace(record.segments[0], **changes), *record.segments[1:])
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda record: dataclasses.replace(record, name=""),
        lambda record: dataclasses.replace(record, dtype="float31"),
        lambda record: dataclasses.replace(record, shape=(4,)),
        lambda record: dataclasses.replace(record, shape=(1 << 60, 6)),
        lambda record: dataclasses.replace(record, region=Region((6, 0), (4, 6))),
        lambda record: dataclasses.replace(record, segments=()),
        lambda record: dataclasses.replace(record, witness=True),
        lambda record: dataclasses.replace(record, witness=True, segments=(), fingerprints=()),
        _with_segment(offset=10),
        _with_segment(offset=-1),
        _with_segment(size_bytes=0),
        _with_segment(size_bytes=95),
        _with_segment(codec=7),
        _with_segment(fingerprint=bytes(16)),
        _with_segment(chunk=ChunkRef("00", 96, 0)),
        _with_segment(chunk=ChunkRef("0" * 64, MAX_CHUNK_BYTES + 1, 0)),
        _with_segment(chunk=ChunkRef("0" * 64, 96, 1 << 64)),
    ],
)
def test_slices_that_break_a_rule_are_refused(change: Callable[[SliceRecord], SliceRecord]) -> None:
    record = ChunkShelf().slice_of("w", floats(8, 6), Region((2, 0), (4, 6)))
    with pytest.raises(FormatError):
        manifest_of([change(record)])


def test_a_region_listed_twice_and_disagreement_within_a_rank_are_refused() -> None:
    shelf = ChunkShelf()
    record = shelf.slice_of("w", floats(8))
    with pytest.raises(FormatError, match="w: a region is listed twice"):
        manifest_of([record, dataclasses.replace(record, witness=True, segments=())])
    with pytest.raises(FormatError, match="disagree"):
        manifest_of([record, shelf.slice_of("w", floats(9), Region((0,), (1,)))])
    with pytest.raises(FormatError, match="repeats"):
        manifest_of([], values=[ValueRecord("a", b"", False), ValueRecord("a", b"", True)])
    with pytest.raises(FormatError, match="out of range"):
        manifest_of([], rank=4)


def _stored(manifest: Manifest) -> dict[str, Any]:
    box = Container(
        encode_manifest(manifest), magic=MANIFEST_MAGIC, section_count=1, max_raw_bytes=MAX_MANIFEST_RAW_BYTES
    )
    fields: dict[str, Any] = msgspec.msgpack.decode(box.section(0))
    return fields


def _packed(fields: dict[str, Any]) -> bytes:
    return pack_container(MANIFEST_MAGIC, [msgspec.msgpack.encode(fields)], level=1)


@pytest.mark.parametrize("fingerprints", [None, b"", b"f" * 15, bytes(16), b"f" * 32])
def test_E205_a_manifest_without_its_fingerprints_is_refused(fingerprints: bytes | None) -> None:
    fields = _stored(manifest_of([ChunkShelf().slice_of("w", floats(8))]))
    fields["fingerprints"] = fingerprints
    with pytest.raises(FormatError):
        decode_manifest(_packed(fields))
    del fields["fingerprints"]
    with pytest.raises(FormatError):
        decode_manifest(_packed(fields))


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(FormatError, match="unknown field"):
        decode_manifest(_packed(_stored(sample_manifest()) | {"extra": 1}))


SAMPLE = sample_manifest()
SAMPLE_DATA = encode_manifest(SAMPLE)


@settings(max_examples=300)
@given(st.data())
def test_any_change_inside_the_columns_is_valid_or_a_format_error(data: st.DataObject) -> None:
    """Whatever decodes must also read and encode again."""
    try:
        manifest = decode_manifest(altered(SAMPLE_DATA, 1, data))
    except FormatError:
        return
    assert content(decode_manifest(encode_manifest(manifest)))[3] == tuple(manifest.slices())
    manifest.content_digest()


@given(st.data())
def test_the_values_alone_are_those_of_the_whole_or_a_format_error(data: st.DataObject) -> None:
    changed = altered(SAMPLE_DATA, 1, data)
    try:
        values = decode_manifest_values(changed)
    except FormatError:
        with pytest.raises(FormatError):
            decode_manifest(changed)
        return
    try:
        assert decode_manifest(changed).values == values
    except FormatError:
        return  # the rest of it is malformed


def test_the_values_of_a_sample_are_read_without_the_rest() -> None:
    assert decode_manifest_values(SAMPLE_DATA) == SAMPLE.values != ()


@given(st.integers(0, len(SAMPLE_DATA) - 1), st.integers(1, 255))
def test_a_flipped_byte_anywhere_is_refused(position: int, flip: int) -> None:
    damaged = bytearray(SAMPLE_DATA)
    damaged[position] ^= flip
    with pytest.raises(FormatError):
        decode_manifest(bytes(damaged))


@given(st.integers(0, len(SAMPLE_DATA) - 1))
def test_a_cut_or_lengthened_manifest_is_refused(length: int) -> None:
    for data in (SAMPLE_DATA[:length], SAMPLE_DATA + b"x"):
        with pytest.raises(FormatError):
            decode_manifest(data)


def test_a_newer_version_or_required_flag_is_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    flagged = bytearray(SAMPLE_DATA)
    flagged[6] = 1
    with pytest.raises(VersionTooNew, match="flags"):
        decode_manifest(bytes(flagged))
    monkeypatch.setattr(container, "FORMAT_VERSION", 2)
    newer = encode_manifest(SAMPLE)
    monkeypatch.undo()
    with pytest.raises(VersionTooNew, match="version 2 is newer"):
        decode_manifest(newer)


def test_damage_in_a_section_is_an_integrity_error() -> None:
    damaged = bytearray(SAMPLE_DATA)
    damaged[-1] ^= 1
    with pytest.raises(IntegrityError, match="checksum"):
        decode_manifest(damaged)
