"""What lies on NVMe, on one rank: the scratch file, its traffic, and parts of parameters and shards kept there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from shardkeep.errors import ConfigurationError
from shardkeep.zero.budget import Budget, Division
from shardkeep.zero.collectives import Collectives
from shardkeep.zero.disk_part import DiskPart
from shardkeep.zero.layout import Bucket, Layout, LayoutKind, ParameterSpec
from shardkeep.zero.offload import NvmeOffload
from shardkeep.zero.scratch_file import ScratchFile, rounded_up
from shardkeep.zero.tile_traffic import Fetch, TileTraffic

ALIGNMENT: Final = 64
"""Of what lies in one tile or file, in bytes: a line of a cache."""
_LOADING_BYTES: Final = 64 << 20


class NvmeStore:
    """One scratch file and the buffers for it, within a budget."""

    def __init__(
        self,
        offload: NvmeOffload,
        rank: int,
        world_size: int,
        *,
        kind: LayoutKind,
        gathers: bool,
        wire_dtype: torch.dtype | None,
    ) -> None:
        wire_bytes = None if wire_dtype is None else wire_dtype.itemsize
        self.file = ScratchFile(offload.directory, rank=rank, keeps_pages=offload.keeps_pages)
        self.traffic = TileTraffic(self.file)
        self.division = Division(0, 0, offload.budget_bytes)
        self._budget = Budget(offload.budget_bytes, world_size, kind, gathers, wire_bytes)
        self._offload = offload
        self._rank = rank
        self._kind = kind
        self.first_fetches: dict[int, Callable[[Any], Fetch | None]] = {}
        """Of each bucket's shard, if it has a gradient; for what is to be read of a tile."""
        self._room = torch.empty(0, dtype=torch.uint8)

    def fit(self, layout: Layout, specs: Sequence[ParameterSpec]) -> list[Bucket]:
        """Buckets for further parameters, of a size that fits; ConfigurationError if nothing does."""
        layout.bucket_bytes = self._budget.bucket_bytes(layout.bucket_bytes, specs)
        added = layout.append(specs)
        self.division = self._budget.divide(layout.buckets, layout.specs)
        self.traffic.budget_bytes = self.division.tile_bytes
        return added

    def plan_tiles(self, bucket: Bucket, part: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Where the tiles of a shard begin and end; with a whole layout none cuts a parameter."""
        most = self.division.tile_elements
        begin, end = part
        if self._kind == "flat":
            yield from ((at, min(at + most, end)) for at in range(begin, end, most))
            return
        for one in bucket.cut(begin, end):
            if one.offset > begin and one.offset + one.size - begin > most:
                yield begin, one.offset
                begin = one.offset
        if begin < end:
            yield begin, end

    def first_fetch_after(self, bucket: int, reads: Any) -> Fetch | None:
        """What the first tile of the next shard that is stepped needs."""
        for index in sorted(self.first_fetches):
            if index > bucket and (found := self.first_fetches[index](reads)) is not None:
                return found
        return None

    def forget_mapped(self) -> None:
        """Mapped memory that was given out is not looked at any more."""
        self.file.forget_mapped()

    def keep(self, values: torch.Tensor) -> DiskPart:
        """Puts a part of parameters on the disk."""
        part = DiskPart(self.file, values.numel(), values.dtype, settle=self.drain)
        part.write(0, values)
        return part

    def state_memory(self, size_bytes: int) -> torch.Tensor:
        """Room for state that is loaded, mapped from a file that lasts as long as the memory."""
        room = rounded_up(size_bytes, ALIGNMENT)
        if self._room.numel() < room:
            file = ScratchFile(self._offload.directory, rank=self._rank)
            self._room = file.mapped(file.allocate(max(room, _LOADING_BYTES)))
            file.close()
        found, self._room = self._room[:size_bytes], self._room[room:]
        return found

    def was_loaded(self) -> None:
        """State is whole again, whatever failed before."""
        self.abandon()
        self._room = torch.empty(0, dtype=torch.uint8)

    def abandon(self) -> None:
        """After a failure: what was on its way does not matter."""
        self.traffic.reset()

    def drain(self) -> None:
        """Returns when nothing moves; raises what failed."""
        self.traffic.drain()

    def close(self) -> None:
        """Removes the file."""
        self.traffic.close()
        self.file.close()


def open_store(
    offload: NvmeOffload,
    collectives: Collectives,
    device: torch.device,
    *,
    kind: LayoutKind,
    gathers: bool,
    wire_dtype: torch.dtype | None,
) -> NvmeStore:
    """The store of this rank. ConfigurationError on every rank if any cannot have its own. Collective.

    `gathers`: at stage 3. `device`: of the collective.
    """
    rank, world_size = collectives.rank, collectives.world_size
    store, failure = None, None
    try:
        store = NvmeStore(offload, rank, world_size, kind=kind, gathers=gathers, wire_dtype=wire_dtype)
    except ConfigurationError as exc:
        failure = exc
    has_one = collectives.gather_rows(torch.tensor([store is not None], dtype=torch.uint8, device=device)).view(-1)
    if failure is not None:
        raise failure
    without = (has_one == 0).nonzero().flatten().tolist()
    if without or store is None:
        raise ConfigurationError(f"ranks {', '.join(map(str, without))} have no scratch file; their own errors say why")
    return store
