"""Checking a chunk's bytes against what a manifest says it holds."""

from __future__ import annotations

import numpy as np

from shardkeep.cli.chunk_checks import ChunkCheck, check_chunk, lost_chunk, plan_chunk_checks
from shardkeep.format.chunks import chunk_ref
from shardkeep.format.codecs import Codec
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SegmentRef, SliceKind, SliceRecord

ROWS, COLUMNS = 600, 1000
RAW = np.arange(ROWS * COLUMNS, dtype=np.float32).tobytes()
STORED = RAW + b"unused"
CHUNK = chunk_ref([STORED])


def record(name: str = "w") -> SliceRecord:
    parts = [RAW[start : start + SEGMENT_BYTES] for start in range(0, len(RAW), SEGMENT_BYTES)]
    segments = tuple(
        SegmentRef(CHUNK, number * SEGMENT_BYTES, len(part), Codec.RAW, fingerprint(part))
        for number, part in enumerate(parts)
    )
    region = Region((100, 0), (ROWS, COLUMNS))
    prints = tuple(segment.fingerprint for segment in segments)
    return SliceRecord(name, "float32", (1000, COLUMNS), region, SliceKind.PARAMETER, False, segments, prints)


def only_check() -> ChunkCheck:
    (check,) = plan_chunk_checks([record()])
    return check


def flipped(position: int) -> memoryview:
    data = bytearray(STORED)
    data[position] ^= 1
    return memoryview(data)


def test_whole_chunks_have_no_findings() -> None:
    assert check_chunk(only_check(), memoryview(STORED)) == []


def test_E204_a_flipped_bit_names_the_tensor_and_the_elements_it_hits() -> None:
    (finding,) = check_chunk(only_check(), flipped(SEGMENT_BYTES + 5))
    assert finding.segment is not None
    assert finding.segment.record.name == "w"
    assert "fingerprint" in finding.detail
    assert CHUNK.digest in finding.detail
    first = finding.segment.regions()[0]
    assert first.offsets == (100 + SEGMENT_BYTES // 4 // COLUMNS, SEGMENT_BYTES // 4 % COLUMNS)
    assert sum(region.volume for region in finding.segment.regions()) == SEGMENT_BYTES // 4


def test_E204_a_flip_between_segments_is_found_too() -> None:
    (finding,) = check_chunk(only_check(), flipped(len(RAW) + 1))
    assert finding.segment is None
    assert CHUNK.digest in finding.detail


def test_E204_a_cut_chunk_is_damage_of_every_segment_that_is_not_whole() -> None:
    findings = check_chunk(only_check(), memoryview(STORED)[: SEGMENT_BYTES + 4096])
    assert [finding.segment and finding.segment.number for finding in findings] == [1, 2]


def test_a_lost_chunk_names_every_slice_once() -> None:
    (check,) = plan_chunk_checks([record("a"), record("b")])
    assert [f.segment and f.segment.record.name for f in lost_chunk(check, "gone")] == ["a", "b"]


def test_the_same_use_of_a_chunk_has_the_same_identity_and_another_use_another() -> None:
    (both,) = plan_chunk_checks([record("a"), record("b")])
    assert only_check().identity() == plan_chunk_checks([record("other")])[0].identity()
    assert only_check().identity() != both.identity()
