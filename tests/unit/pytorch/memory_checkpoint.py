"""A checkpoint in memory, made of captures: what restoring needs of a real one, with the same rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.format.dtypes import dtype_named
from shardkeep.format.names import join_name
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.format.values import decode_value, encode_value
from shardkeep.pytorch.captured import Capture, CapturedTensor, Piece
from shardkeep.pytorch.tensors import fill_from, raw_bytes
from shardkeep.store.reading import RegionRead
from shardkeep.store.stored_values import ReadableValues, readable_values

FILL_BYTES = 64


@dataclass(frozen=True)
class SavedSlice:
    """A part of a tensor, as bytes."""

    region: Region
    data: bytes


@dataclass(frozen=True)
class SavedTensor:
    """One tensor of one rank."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: SliceKind
    slices: tuple[SavedSlice, ...]


@dataclass(frozen=True)
class RankSave:
    """What one rank saved; it can be pickled, so that ranks can hand it over."""

    tensors: tuple[SavedTensor, ...]
    values: tuple[ValueRecord, ...]
    aliases: Mapping[str, str]


def save(capture: Capture) -> RankSave:
    """The bytes of a capture, as they are now."""
    return RankSave(
        tuple(_saved(tensor) for tensor in capture.tensors),
        tuple(ValueRecord(join_name(v.path), encode_value(v.value), v.per_rank) for v in capture.values),
        dict(capture.aliases),
    )


def _saved(tensor: CapturedTensor) -> SavedTensor:
    slices = tuple(SavedSlice(piece.region, bytes_of(piece, tensor.dtype)) for piece in tensor.pieces)
    return SavedTensor(tensor.name, tensor.dtype, tensor.shape, tensor.kind, slices)


def bytes_of(piece: Piece, dtype: str) -> bytes:
    """A piece's bytes, filled in several steps as a small budget would."""
    assert tuple(piece.tensor.shape) == piece.region.sizes
    out = bytearray(raw_bytes(dtype, piece.region.sizes))
    fill = fill_from(piece.tensor)
    for start in range(0, len(out), FILL_BYTES):
        fill(start, memoryview(out)[start : start + FILL_BYTES])
    return bytes(out)


@dataclass(frozen=True)
class MemoryTensor:
    """A whole tensor as a byte array of shape (*shape, item bytes), with variants by rank for buffers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: SliceKind
    variants: dict[int, npt.NDArray[np.uint8]] = field(default_factory=dict)

    def of_rank(self, rank: int) -> npt.NDArray[np.uint8]:
        """The bytes that a rank reads."""
        return self.variants.get(rank, self.variants[min(self.variants)])


@dataclass(frozen=True)
class MemoryReport:
    """What validation would find."""

    per_rank_values: tuple[str, ...]
    values_of_some_ranks: Mapping[str, int]


@dataclass(frozen=True)
class MemoryInfo:
    """See CheckpointInfo."""

    world_size: int
    report: MemoryReport


class MemoryCheckpoint:
    """Committed: every tensor covered, replicas equal."""

    def __init__(self, ranks: Sequence[RankSave]) -> None:
        self.ranks = ranks
        self._tensors: dict[str, MemoryTensor] = {}
        self.requests: list[RegionRead] = []
        for rank, saved in enumerate(ranks):
            for tensor in saved.tensors:
                self._add(rank, tensor)
        self.info = MemoryInfo(len(ranks), self._report())
        for name, covered in self._covered.items():
            assert covered.all(), f"{name} has a gap"

    @classmethod
    def of(cls, *captures: Capture) -> MemoryCheckpoint:
        """From captures of all ranks, in this process."""
        return cls([save(capture) for capture in captures])

    def _add(self, rank: int, saved: SavedTensor) -> None:
        known = self._tensors.setdefault(saved.name, MemoryTensor(saved.name, saved.dtype, saved.shape, saved.kind))
        assert (known.dtype, known.shape, known.kind) == (saved.dtype, saved.shape, saved.kind), saved.name
        variant = rank if saved.kind is SliceKind.BUFFER else 0
        item_bytes = dtype_named(saved.dtype).item_bytes
        whole = known.variants.setdefault(variant, np.zeros((*saved.shape, item_bytes), np.uint8))
        covered = self._covered.setdefault(saved.name, np.zeros(saved.shape, np.bool_))
        for part in saved.slices:
            at = _index(part.region)
            data = np.frombuffer(part.data, np.uint8).reshape(*part.region.sizes, item_bytes)
            if saved.kind is not SliceKind.BUFFER and part.region.volume and np.all(covered[at]):
                assert np.array_equal(whole[at], data), f"replicas of {saved.name} differ"
            whole[at] = data
            covered[at] = True

    @property
    def _covered(self) -> dict[str, npt.NDArray[np.bool_]]:
        return self.__dict__.setdefault("covered", {})  # type: ignore[no-any-return]

    def _report(self) -> MemoryReport:
        by_path: dict[str, dict[int, ValueRecord]] = {}
        for rank, saved in enumerate(self.ranks):
            for record in saved.values:
                by_path.setdefault(record.path, {})[rank] = record
        differing = [path for path, found in by_path.items() if len({record.encoded for record in found.values()}) > 1]
        some = {path: min(found) for path, found in by_path.items() if len(found) < len(self.ranks)}
        flagged = {path for path in some if any(record.per_rank for record in by_path[path].values())}
        return MemoryReport(
            tuple({*differing, *flagged}),
            {path: rank for path, rank in some.items() if path not in differing and path not in flagged},
        )

    def tensors(self) -> list[MemoryTensor]:
        """See Checkpoint."""
        return list(self._tensors.values())

    def values(self, rank: int = 0) -> dict[tuple[str, ...], Any]:
        """See Checkpoint."""
        from shardkeep.format.names import split_name

        return {split_name(record.path): decode_value(record.encoded) for record in self.ranks[rank].values}

    def readable_values(self, rank: int | None = None) -> ReadableValues:
        """See Checkpoint."""
        return readable_values(
            lambda at: self.ranks[at], self.info.report, lambda record: decode_value(record.encoded), rank=rank
        )

    def read(self, requests: Sequence[RegionRead], *, rank: int | None = None) -> None:
        """See Checkpoint."""
        self.requests += requests
        for request in requests:
            whole = self._tensors[request.name].of_rank(rank or 0)
            request.out[:] = np.ascontiguousarray(whole[_index(request.region)]).tobytes()

    def tensor_bytes(self, name: str, rank: int = 0) -> bytes:
        """All bytes of a tensor."""
        return self._tensors[name].of_rank(rank).tobytes()

    def without(self, *names: str) -> MemoryCheckpoint:
        """The same without some tensors and values, by joined name."""
        return MemoryCheckpoint(
            [
                RankSave(
                    tuple(tensor for tensor in saved.tensors if tensor.name not in names),
                    tuple(record for record in saved.values if record.path not in names),
                    saved.aliases,
                )
                for saved in self.ranks
            ]
        )


def _index(region: Region) -> tuple[slice, ...]:
    return tuple(slice(start, end) for start, end in zip(region.offsets, region.ends, strict=True))
