"""Reading planned tensors: straight into live CPU memory where it is row-major, else through bounded temporaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from shardkeep.pytorch.captured import Piece
from shardkeep.pytorch.restore_plan import Target
from shardkeep.pytorch.stored import StoredState, StoredTensor
from shardkeep.pytorch.tensors import byte_view, dtype_name, empty_like_stored, is_dense, raw_bytes, write_into
from shardkeep.store.reading import ReadRequest

TEMPORARY_BYTES = 256 << 20
"""The most memory that temporaries hold at a time; one larger piece is read in parts."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A piece that cannot be read in place."""

    stored: StoredTensor
    piece: Piece


def read_targets(targets: Sequence[Target], checkpoint: StoredState, *, rank: int) -> int:
    """Read everything planned; the number of bytes read. New memory is made here and not before."""
    direct: list[ReadRequest] = []
    staged: list[Staged] = []
    total = 0
    for target in targets:
        for piece in target.place():
            total += raw_bytes(target.stored.dtype, piece.region.sizes)
            if is_dense(piece.tensor) and dtype_name(piece.tensor.dtype) == target.stored.dtype:
                direct.append(ReadRequest(target.stored.name, piece.region, byte_view(piece.tensor)))
            else:
                staged.extend(_parts(target.stored, piece))
    if direct:
        checkpoint.read(direct, rank=rank)
    for batch in _batches(staged):
        _read_staged(batch, checkpoint, rank)
    return total


def _parts(stored: StoredTensor, piece: Piece) -> Iterator[Staged]:
    """The piece, halved along its longest dimension until each part fits the temporaries."""
    if raw_bytes(stored.dtype, piece.region.sizes) <= TEMPORARY_BYTES:
        yield Staged(stored, piece)
        return
    sizes = piece.region.sizes
    dim = max(range(len(sizes)), key=lambda at: sizes[at])
    half = sizes[dim] // 2
    for start, length in ((0, half), (half, sizes[dim] - half)):
        offsets = tuple(offset + start * (at == dim) for at, offset in enumerate(piece.region.offsets))
        part_sizes = tuple(length if at == dim else size for at, size in enumerate(sizes))
        region = type(piece.region)(offsets, part_sizes)
        yield from _parts(stored, Piece(region, piece.tensor.narrow(dim, start, length)))


def _batches(staged: list[Staged]) -> Iterator[list[Staged]]:
    batch: list[Staged] = []
    held = 0
    for part in staged:
        size = raw_bytes(part.stored.dtype, part.piece.region.sizes)
        if batch and held + size > TEMPORARY_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(part)
        held += size
    if batch:
        yield batch


def _read_staged(batch: list[Staged], checkpoint: StoredState, rank: int) -> None:
    temporaries: list[torch.Tensor] = []
    requests: list[ReadRequest] = []
    for part in batch:
        temporary = empty_like_stored(part.stored.dtype, part.piece.region.sizes)
        temporaries.append(temporary)
        requests.append(ReadRequest(part.stored.name, part.piece.region, byte_view(temporary)))
    checkpoint.read(requests, rank=rank)
    for part, temporary in zip(batch, temporaries, strict=True):
        write_into(part.piece.tensor, temporary)
