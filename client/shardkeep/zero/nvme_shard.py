"""A shard in a scratch file: master, gradient and state by tiles, in memory only while they are computed on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from shardkeep.pytorch.tensors import byte_view
from shardkeep.zero.collectives import PendingSum
from shardkeep.zero.disk_part import DiskPart
from shardkeep.zero.inner import InnerTile
from shardkeep.zero.layout import Bucket
from shardkeep.zero.nvme import ALIGNMENT, NvmeStore
from shardkeep.zero.parameter_memory import ParameterMemory
from shardkeep.zero.scratch_file import Span, rounded_up
from shardkeep.zero.shards import StatePart, Tile
from shardkeep.zero.tile_traffic import BufferSet, Fetch, Move, TileKey

Reads = Callable[["_DiskTile"], tuple[Move, ...]]


@dataclass(frozen=True, slots=True)
class _Record:
    """A tensor of the optimizer's state: of which parameter, and where in the tile's state it lies."""

    parameter: int
    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    at: int

    @property
    def size_bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def of(self, state: torch.Tensor) -> torch.Tensor:
        """It, in memory that has the tile's state."""
        return state[self.at : self.at + self.size_bytes].view(self.dtype).view(self.shape)


@dataclass(slots=True)
class _DiskTile:
    """Elements `begin` to `end` of the bucket. Spans are of the file; `master` is None if it is in memory."""

    key: TileKey
    begin: int
    end: int
    inner: InnerTile
    gradient: Span
    master: Span | None
    state: Span | None = None
    records: tuple[_Record, ...] = ()

    @property
    def count(self) -> int:
        """Elements."""
        return self.end - self.begin

    @property
    def master_at(self) -> int:
        """Where in a set of buffers the master lies: behind the gradient. It is room for a second gradient too."""
        return _aligned(self.count * torch.float32.itemsize)

    @property
    def state_at(self) -> int:
        """Where in a set of buffers the state lies."""
        master_bytes = 0 if self.master is None else self.master.size_bytes
        return self.master_at + _aligned(max(master_bytes, self.gradient.size_bytes))


class NvmeShard:
    """See `Shard`. A step reads the state that the tile's optimizer made in its first one, and writes it behind.

    Between steps the optimizer has empty tensors in its place. State that was just loaded is ordinary or mapped memory
    until the next step.
    """

    def __init__(
        self,
        store: NvmeStore,
        bucket: Bucket,
        part: tuple[int, int],
        *,
        dtype: torch.dtype,
        masters: Span | torch.Tensor,
        are_parameters: bool,
        inner_tile: Callable[[int, int], InnerTile],
        divisor: int,
    ) -> None:
        """`masters`: their span of the file, or memory; `are_parameters`: there is no other copy of the parameters."""
        self._store = store
        self._bucket = bucket.index
        self._begin = part[0]
        self._dtype = dtype
        self._are_parameters = are_parameters
        self._divisor = divisor
        self._memory = masters if isinstance(masters, torch.Tensor) else None
        self._has_gradient = False
        self._tiles: list[_DiskTile] = []
        gradients = store.file.allocate((part[1] - part[0]) * torch.float32.itemsize)
        for begin, end in store.plan_tiles(bucket, part):
            start, count = begin - part[0], end - begin
            gradient = gradients.part(start * torch.float32.itemsize, count * torch.float32.itemsize)
            master = masters.part(start * dtype.itemsize, count * dtype.itemsize) if isinstance(masters, Span) else None
            key = (bucket.index, len(self._tiles))
            tile = _DiskTile(key, begin, end, inner_tile(begin, end), gradient, master)
            store.traffic.reserve(tile.state_at)
            self._tiles.append(tile)
        store.first_fetches[bucket.index] = self._first_fetch

    # --- gradients ---------------------------------------------------------------------------------------------------

    def add_gradient(self, arrived: PendingSum) -> None:
        """Adds what arrived, tile by tile."""
        arrived.wait()
        is_first = not self._has_gradient
        for tile, buffers, writes in self._stream(_nothing if is_first else _gradient_moves):
            total = buffers.tensor(0, tile.count, torch.float32)
            fresh = total if is_first else buffers.tensor(tile.master_at, tile.count, torch.float32)
            arrived.sum_into(fresh, self._divisor, start=tile.begin - self._begin)
            if not is_first:
                total += fresh
            writes.extend(_gradient_moves(tile))
        self._has_gradient = True

    def drop_gradient(self) -> None:
        """Forgets the gradient; its room stays. Outside of a step nothing but gradients is written behind."""
        self._store.abandon()
        self._has_gradient = False

    def gradients(self, *, write: bool) -> Iterator[tuple[int, torch.Tensor]]:
        """A piece for each tile."""
        if not self._has_gradient:
            return
        for tile, buffers, writes in self._stream(_gradient_moves):
            yield tile.begin, buffers.tensor(0, tile.count, torch.float32)
            if write:
                writes.extend(_gradient_moves(tile))

    # --- tiles -------------------------------------------------------------------------------------------------------

    def tiles(self, *, step: bool) -> Iterator[Tile]:
        """Each tile. Masters that are the parameters themselves need no reading or writing without a step: none."""
        if step and self._has_gradient:
            yield from self._stepped()
        elif not step and not self._are_parameters:
            yield from self._masters()

    def _masters(self) -> Iterator[Tile]:
        for tile, buffers, writes in self._stream(_master_moves):
            master = self._master(tile, buffers)
            yield Tile(tile.begin, tile.end, master, master.new_empty(0), tile.inner)
            writes.extend(_master_moves(tile))
        self._store.drain()

    def _stepped(self) -> Iterator[Tile]:
        for tile, buffers, writes in self._stream(_step_moves):
            master = self._master(tile, buffers)
            gradient = buffers.tensor(0, tile.count, torch.float32)
            tile.inner.point(master, gradient)
            try:
                _attach(tile, buffers)
                yield Tile(tile.begin, tile.end, master, gradient, tile.inner)
                writes.extend((*_master_moves(tile), *self._detach(tile, buffers)))
            finally:
                tile.inner.release()

    def _stream(self, reads: Reads) -> Iterator[tuple[_DiskTile, BufferSet, list[Move]]]:
        """Each tile with what `reads` says in memory; what is added to the list of moves is written behind it."""
        traffic = self._store.traffic
        self._store.forget_mapped()
        for place, tile in enumerate(self._tiles):
            buffers = traffic.take(Fetch(tile.key, reads(tile)))
            writes: list[Move] = []
            is_done = False
            try:
                self._read_ahead(place + 1, reads)
                yield tile, buffers, writes
                is_done = True
            finally:
                traffic.put_back(buffers, tile.key, writes if is_done else ())

    def _read_ahead(self, place: int, reads: Reads) -> None:
        ahead = self._store.first_fetch_after(self._bucket, reads) if reads is _step_moves else None
        if place < len(self._tiles):
            ahead = Fetch(self._tiles[place].key, reads(self._tiles[place]))
        if ahead is not None and ahead.moves:
            self._store.traffic.read_ahead(ahead)

    def _first_fetch(self, reads: Reads) -> Fetch | None:
        if not self._tiles or not self._has_gradient:
            return None
        return Fetch(self._tiles[0].key, reads(self._tiles[0]))

    def _master(self, tile: _DiskTile, buffers: BufferSet) -> torch.Tensor:
        if self._memory is not None:
            return self._memory[tile.begin - self._begin : tile.end - self._begin]
        return buffers.tensor(tile.master_at, tile.count, self._dtype)

    # --- state -------------------------------------------------------------------------------------------------------

    def _detach(self, tile: _DiskTile, buffers: BufferSet) -> tuple[Move, ...]:
        """Takes the state from the optimizer: what is to be written. State of another layout than before is by now."""
        records, found = _records(tile.inner), tile.inner.state
        if records != tile.records:
            self._write_anew(tile, records)
            moves: tuple[Move, ...] = ()
        else:
            moves = _state_moves(tile)
            state = _state_in(tile, buffers)
            for record in records:
                place, value = record.of(state), found[record.parameter][record.key]
                if value.data_ptr() != place.data_ptr():
                    place.copy_(value)
        for record in records:
            found[record.parameter][record.key] = torch.empty(0, dtype=record.dtype)
        return moves

    def _write_anew(self, tile: _DiskTile, records: tuple[_Record, ...]) -> None:
        file, found = self._store.file, tile.inner.state
        span = file.allocate(records[-1].at + records[-1].size_bytes if records else 0)
        for record in records:
            value = found[record.parameter][record.key].detach()
            file.write(span.offset + record.at, byte_view(value.to("cpu").contiguous()))
        if tile.state is not None:
            file.free(tile.state)
        tile.state, tile.records = span, records
        self._store.traffic.reserve(tile.state_at + span.size_bytes)

    def state_parts(self, parameter: int) -> Sequence[StatePart]:
        """A part for each tile that has some of it."""
        self._store.drain()
        parts = []
        for tile in self._tiles:
            one = tile.inner.slice_of(parameter)
            if one is not None:
                tensors, values = self._state_of(tile, parameter)
                start = one.offset - tile.begin
                master = self._live_master(tile)[start : start + one.size]
                parts.append(StatePart(one.start, one.stop, master, tensors, values))
        return parts

    def set_state(self, parameter: int, parts: Sequence[StatePart] | None, groups: Sequence[dict[str, Any]]) -> None:
        """Takes the tensors as they are; the next step writes them to the file."""
        having = [tile for tile in self._tiles if parameter in tile.inner.leaves]
        for place, tile in enumerate(having):
            tile.records = tuple(record for record in tile.records if record.parameter != parameter)
            tile.inner.point(self._live_master(tile), None)
            state = {**parts[place].tensors, **parts[place].values} if parts else None
            tile.inner.set_state(parameter, state, groups)
            tile.inner.release()

    def empty_state(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Mapped memory, of a file that lasts as long."""
        return self._store.state_memory(count * dtype.itemsize).view(dtype)

    def _state_of(self, tile: _DiskTile, parameter: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        found = dict(tile.inner.state_of(parameter))
        if tile.state is not None:
            state = self._store.file.mapped(tile.state)
            found |= {record.key: record.of(state) for record in tile.records if record.parameter == parameter}
        tensors = {key: value for key, value in found.items() if isinstance(value, torch.Tensor) and value.ndim}
        return tensors, {key: value for key, value in found.items() if key not in tensors}

    def _live_master(self, tile: _DiskTile) -> torch.Tensor:
        if tile.master is not None:
            return self._store.file.mapped(tile.master).view(self._dtype)
        assert self._memory is not None
        return self._memory[tile.begin - self._begin : tile.end - self._begin]


def shard_on_nvme(
    store: NvmeStore,
    bucket: Bucket,
    part: tuple[int, int],
    memory: ParameterMemory,
    dtype: torch.dtype,
    inner_tile: Callable[[int, int], InnerTile],
    *,
    divisor: int,
) -> NvmeShard:
    """A shard whose masters are the parameters where those are of their dtype and in the host's memory or on disk."""
    own, on_disk = memory.own, memory.on_disk
    are_parameters = True
    masters: Span | torch.Tensor
    if own is not None and own.dtype == dtype and own.device.type == "cpu":
        masters = own
    elif on_disk is not None and on_disk.dtype == dtype:
        masters, on_disk.is_master = on_disk.span, True
    else:
        masters, are_parameters = _copy_of(store, memory, part, dtype), False
    return NvmeShard(
        store,
        bucket,
        part,
        dtype=dtype,
        masters=masters,
        are_parameters=are_parameters,
        inner_tile=inner_tile,
        divisor=divisor,
    )


def _copy_of(store: NvmeStore, memory: ParameterMemory, part: tuple[int, int], dtype: torch.dtype) -> Span:
    copied = DiskPart(store.file, part[1] - part[0], dtype)
    most = store.division.tile_elements
    for begin in range(*part, most):
        values = torch.empty(min(most, part[1] - begin), dtype=dtype)
        memory.read_own(begin, values)
        copied.write(begin - part[0], values)
    return copied.span


def _nothing(_tile: _DiskTile) -> tuple[Move, ...]:
    return ()


def _gradient_moves(tile: _DiskTile) -> tuple[Move, ...]:
    return ((tile.gradient, 0),)


def _master_moves(tile: _DiskTile) -> tuple[Move, ...]:
    return () if tile.master is None else ((tile.master, tile.master_at),)


def _state_moves(tile: _DiskTile) -> tuple[Move, ...]:
    return ((tile.state, tile.state_at),) if tile.records and tile.state is not None else ()


def _step_moves(tile: _DiskTile) -> tuple[Move, ...]:
    return (*_gradient_moves(tile), *_master_moves(tile), *_state_moves(tile))


def _state_in(tile: _DiskTile, buffers: BufferSet) -> torch.Tensor:
    size_bytes = 0 if tile.state is None else tile.state.size_bytes
    return buffers.bytes[tile.state_at : tile.state_at + size_bytes]


def _attach(tile: _DiskTile, buffers: BufferSet) -> None:
    """Gives the optimizer the state that was read."""
    state, found = _state_in(tile, buffers), tile.inner.state
    for record in tile.records:
        found[record.parameter][record.key] = record.of(state)


def _records(inner: InnerTile) -> tuple[_Record, ...]:
    """All tensors of the optimizer's state but single numbers, one behind the other."""
    records, at = [], 0
    for parameter, state in inner.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.ndim:
                records.append(_Record(parameter, key, value.dtype, tuple(value.shape), at))
                at += _aligned(records[-1].size_bytes)
    return tuple(records)


def _aligned(size_bytes: int) -> int:
    return rounded_up(size_bytes, ALIGNMENT)
