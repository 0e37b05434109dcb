"""What needs no upload."""

from __future__ import annotations

from shardkeep.format.codecs import Codec
from shardkeep.format.regions import Region
from shardkeep.format.segments import ChunkRef, SegmentRef, SliceKind, SliceRecord
from shardkeep.planning.reuse import History, reusable

REGION = Region((0,), (4,))
SEGMENT = SegmentRef(ChunkRef("0" * 64, 16, 0), 0, 16, Codec.RAW, b"f" * 16)
RECORD = SliceRecord("w", "float32", (4,), REGION, SliceKind.PARAMETER, False, (SEGMENT,), (b"f" * 16,))


def test_only_the_parent_is_reused() -> None:
    history = History.of("ckp_1", [RECORD])
    assert history.usable_on("ckp_1") is history
    assert not history.usable_on("ckp_2").slices
    assert not history.usable_on(None).slices
    assert not History.empty().usable_on(None).slices


def test_name_region_dtype_and_fingerprint_must_be_the_same() -> None:
    history = History.of("ckp_1", [RECORD])
    stored = history.segments_of("w", "float32", REGION)
    assert reusable(stored, 0, b"f" * 16) == SEGMENT
    assert reusable(stored, 0, b"g" * 16) is None
    assert reusable(stored, 1, b"f" * 16) is None
    assert history.segments_of("v", "float32", REGION) == ()
    assert history.segments_of("w", "int32", REGION) == ()
    assert history.segments_of("w", "float32", Region((0,), (3,))) == ()
