"""Builders for format tests: arrays become slices whose encoded segments lie in chunks kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.format.chunks import ChunkRef, chunk_ref
from shardkeep.format.codecs import Codec, decode_segment, encode_segment
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.load_plan import LoadPlan
from shardkeep.format.manifest import Manifest, build_manifest
from shardkeep.format.regions import Region
from shardkeep.format.segments import (
    SEGMENT_BYTES,
    SegmentRef,
    SliceKind,
    SliceRecord,
    ValueRecord,
)

Array = npt.NDArray[Any]


class ChunkShelf:
    """Turns arrays into slices, one chunk a slice, and reads plans back from the chunks."""

    def __init__(self) -> None:
        self.chunks: dict[str, bytes] = {}

    def slice_of(
        self,
        name: str,
        tensor: Array,
        region: Region | None = None,
        *,
        kind: SliceKind = SliceKind.PARAMETER,
        witness: bool = False,
        codec: Codec = Codec.RAW,
        dtype: str | None = None,
    ) -> SliceRecord:
        region = Region.whole(tensor.shape) if region is None else region
        raw = memoryview(tensor[as_slices(region)].tobytes())
        pieces = [raw[start : start + SEGMENT_BYTES] for start in range(0, len(raw), SEGMENT_BYTES)]
        fingerprints = tuple(fingerprint(piece) for piece in pieces)
        segments = () if witness else self._store(pieces, fingerprints, codec, tensor.dtype.itemsize)
        return SliceRecord(
            name, dtype or tensor.dtype.name, tensor.shape, region, kind, witness, segments, fingerprints
        )

    def read(self, plan: LoadPlan, item: int) -> bytes:
        """The raw bytes of one item's whole tensor shape, zeros where the plan has no piece."""
        dtype = dtype_named(plan.dtype(item) or "")
        out = np.zeros((*plan.shape(item), dtype.item_bytes), np.uint8)
        for piece in plan.pieces():
            if piece.item != item:
                continue
            source = np.zeros(piece.source.volume * dtype.item_bytes, np.uint8)
            for segment in piece.segments:
                encoded = self.chunks[segment.chunk.digest][segment.offset : segment.offset + segment.size_bytes]
                target = source.data[segment.raw_start : segment.raw_start + segment.raw_bytes]
                decode_segment(segment.codec, encoded, target, item_bytes=dtype.item_bytes)
                assert fingerprint(target) == segment.fingerprint
            shaped = source.reshape(*piece.source.sizes, dtype.item_bytes)
            out[as_slices(piece.region)] += shaped[as_slices(piece.region.relative_to(piece.source))]
        return out.tobytes()

    def _store(
        self, pieces: Sequence[memoryview], fingerprints: Sequence[bytes], codec: Codec, item_bytes: int
    ) -> tuple[SegmentRef, ...]:
        encoded = [encode_segment(codec, piece, item_bytes) for piece in pieces]
        if not encoded:
            return ()
        data = b"".join(part.data for part in encoded)
        chunk = chunk_ref([data])
        self.chunks[chunk.digest] = data
        segments, offset = [], 0
        for part, mark in zip(encoded, fingerprints, strict=True):
            segments.append(SegmentRef(chunk, offset, len(part.data), part.codec, mark))
            offset += len(part.data)
        return tuple(segments)


def as_slices(region: Region) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in zip(region.offsets, region.ends, strict=True))


def manifest_of(
    slices: Sequence[SliceRecord], *, rank: int = 0, world_size: int = 4, values: Sequence[ValueRecord] = ()
) -> Manifest:
    return build_manifest(rank=rank, world_size=world_size, step=7, slices=slices, values=values)


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("<f4")


def golden_manifest(rank: int) -> Manifest:
    """Fixed content with every feature of version 1; tests/golden holds its bytes. Never change it."""
    chunk = ChunkRef("ab" * 31 + f"{rank:02x}", 1 << 20, 0x1122334455667788)
    rows = Region((rank * 2, 0), (2, 3))

    def stored(
        name: str, dtype: str, shape: tuple[int, ...], region: Region, kind: SliceKind, raw_bytes: int, offset: int
    ) -> SliceRecord:
        mark = bytes([len(name) % 250 + 1]) * 15 + (bytes([rank + 1]) if region.sizes != shape else b"\x01")
        segment = SegmentRef(chunk, offset, raw_bytes, Codec.RAW, mark)
        return SliceRecord(name, dtype, shape, region, kind, False, (segment,), (mark,))

    whole = Region.whole((4, 3))
    slices = [
        stored("model.weight", "float32", (4, 3), rows, SliceKind.PARAMETER, 24, 0),
        stored("model.a\\.b", "bfloat16", (4, 3), rows, SliceKind.OPTIMIZER, 12, 24),
        stored("model.mean", "float64", (), Region((), ()), SliceKind.BUFFER, 8, 40),
        stored("packed.\u00e9", "float4_e2m1fn_x2", (4, 3), rows, SliceKind.TENSOR, 6, 64),
        SliceRecord("empty", "int64", (0, 5), Region((0, 0), (0, 5)), SliceKind.TENSOR, False, (), ()),
    ]
    if rank == 0:
        slices.append(stored("frozen", "uint8", (4, 3), whole, SliceKind.FROZEN, 12, 96))
    else:
        mark = b"\x07" * 15 + b"\x01"
        slices.append(SliceRecord("frozen", "uint8", (4, 3), whole, SliceKind.FROZEN, True, (), (mark,)))
    return build_manifest(
        rank=rank,
        world_size=2,
        step=1000,
        slices=slices,
        values=[ValueRecord("state.epoch", b"\x03", False), ValueRecord("rng.torch", b"\xc0", True)],
        metrics={"loss": 0.25, "nan": float("nan"), "inf": float("inf")},
        environment={"torch": "2.13.0", "threads": 2, "deterministic": True},
    )


def golden_value() -> dict[object, object]:
    """Likewise, every kind of plain value."""
    return {
        "none": None,
        1: [True, -1, 2**80, -(2**80), 1.5, float("-inf")],
        "1": ("text \u00e9", b"bytes", bytearray(b"array")),
        (1, "key"): {"set": {3, 1, 2}, "frozen": frozenset({"a"})},
        None: list(range(20)),
        2.5: np.arange(6, dtype="<f4").reshape(2, 3),
        "scalar": np.int16(-3),
        "complex": 1 - 2j,
    }
