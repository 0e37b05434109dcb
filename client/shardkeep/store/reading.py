"""Reading regions of a checkpoint: planned by the service, fetched in parallel, every segment verified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import IntegrityError, LoadError, NotFound, ShapeMismatch, ShardkeepError
from shardkeep.format.codecs import Codec, decode_segment
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.load_plan import LoadPlan, LoadRequest, PiecePlan, PlannedSegment
from shardkeep.format.regions import Region
from shardkeep.planning.placement import Destination, contiguous_start, direct_view, is_wanted, scatter
from shardkeep.planning.range_reads import RangeRead, StoredExtent, plan_range_reads
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.store.chunk_targets import ChunkTargets
from shardkeep.store.read_progress import ReadProgress

_PLAN_ITEMS: Final = 100_000
"""Regions asked for in one load request."""
_LOOK_SECONDS: Final = 0.5


class RegionRead(Protocol):
    """A region to read: its row-major bytes go to `out`."""

    @property
    def name(self) -> str:
        """The stored name."""
        ...

    @property
    def region(self) -> Region:
        """What of the global tensor."""
        ...

    @property
    def out(self) -> memoryview:
        """Writable, contiguous, of exactly the region's bytes in the stored dtype."""
        ...


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A `RegionRead`."""

    name: str
    region: Region
    out: memoryview


@dataclass(slots=True, eq=False)
class _Placement:
    """One place that a segment's bytes go to: they are the elements `start` to `stop` of the slice `stored`."""

    name: str
    destination: Destination
    part: Region
    stored: Region
    start: int
    stop: int


@dataclass(slots=True, eq=False)
class _SegmentRead:
    """A segment to fetch once and put everywhere it is wanted; `direct` is its memory in the first place, if any."""

    segment: PlannedSegment
    direct: memoryview | None = None
    placements: list[_Placement] = field(default_factory=list)

    @property
    def item_bytes(self) -> int:
        return self.placements[0].destination.item_bytes


class VerifiedReader:
    """Reads of one committed checkpoint. Thread-safe."""

    def __init__(self, service: ServiceClient, checkpoint_id: str, progress: ReadProgress) -> None:
        self._service = service
        self._checkpoint_id = checkpoint_id
        self._progress = progress

    def read(self, requests: Sequence[RegionRead], *, rank: int | None = None) -> None:
        """See `Checkpoint.read`."""
        wanted = [request for request in requests if not request.region.is_empty]
        for start in range(0, len(wanted), _PLAN_ITEMS):
            self._read(wanted[start : start + _PLAN_ITEMS], rank)

    def _read(self, requests: Sequence[RegionRead], rank: int | None) -> None:
        names = tuple(request.name for request in requests)
        asked = LoadRequest(names, tuple(request.region for request in requests), rank)
        plan = self._service.load_plan(self._checkpoint_id, asked)
        destinations = self._destinations(plan, requests)
        plan.check(asked)
        segments = _segment_reads(plan.pieces(), names, destinations)
        extents = (
            StoredExtent(read.segment.chunk, read.segment.offset, read.segment.size_bytes, read) for read in segments
        )
        self._fetch_all(plan_range_reads(extents))

    def _destinations(self, plan: LoadPlan, requests: Sequence[RegionRead]) -> list[Destination]:
        if plan.unknown:
            raise NotFound(
                f"checkpoint {self._checkpoint_id} has no tensor {', '.join(map(repr, plan.unknown[:3]))}"
                + (f" and {len(plan.unknown) - 3} more of those asked for" if len(plan.unknown) > 3 else ""),
                code=ErrorCode.UNKNOWN_TENSOR,
                status=404,
                extra={"tensors": list(plan.unknown)},
            )
        return [_destination(request, plan.dtype(item), plan.shape(item)) for item, request in enumerate(requests)]

    def _fetch_all(self, reads: list[RangeRead[_SegmentRead]]) -> None:
        targets = ChunkTargets(self._service, self._checkpoint_id, (read.chunk.digest for read in reads))
        workers = min(self._service.transport.connections, len(reads))
        with self._progress.reading(sum(read.size_bytes for read in reads)):
            if workers <= 1:
                for read in reads:
                    self._fetch(read, targets)
                return
            with ThreadPoolExecutor(workers, thread_name_prefix="shardkeep-read") as pool:
                fetching = {pool.submit(self._fetch, read, targets) for read in reads}
                try:
                    self._wait_for(fetching)
                except BaseException:
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise

    def _wait_for(self, fetching: set[Future[None]]) -> None:
        while fetching:
            done, fetching = wait(fetching, _LOOK_SECONDS, FIRST_EXCEPTION)
            for future in done:
                future.result()
            self._progress.show()

    def _fetch(self, read: RangeRead[_SegmentRead], targets: ChunkTargets) -> None:
        parts: list[memoryview] = []
        encoded: list[memoryview] = []
        for extent, gap in zip(read.extents, read.gaps(), strict=True):
            view = _landing(extent.key)
            encoded.append(view)
            parts.append(view)
            if gap:
                parts.append(_scratch(gap))
        try:
            targets.read_into(read.chunk, read.offset, parts)
        except IntegrityError as damage:  # the object is gone or was cut
            raise self._damaged(read.extents[0].key, damage) from damage
        for extent, view in zip(read.extents, encoded, strict=True):
            self._settle(extent.key, view, targets)
        self._progress.advance(read.size_bytes)

    def _settle(self, read: _SegmentRead, encoded: memoryview, targets: ChunkTargets) -> None:
        """Decode, verify and place one segment; damaged bytes are fetched once more before they are an error."""
        try:
            raw = _verified(read, encoded)
        except IntegrityError:
            segment = read.segment
            again = _scratch(segment.size_bytes)
            targets.read_into(segment.chunk, segment.offset, [again])
            try:
                raw = _verified(read, again)
            except IntegrityError as damage:
                raise self._damaged(read, damage) from damage
        _place(read, raw)

    def _damaged(self, read: _SegmentRead, damage: IntegrityError) -> IntegrityError:
        digest = read.segment.chunk.digest
        try:
            answer = self._service.report_damage(self._checkpoint_id, [digest])
            reported = "the service was told" + (
                " and finds its bytes whole: they are damaged on the way" if digest in answer.whole else ""
            )
        except ShardkeepError as refusal:
            reported = f"the service could not be told: {refusal}"
        placement = read.placements[0]
        return IntegrityError(
            f"{placement.name}, offsets {placement.stored.offsets} sizes {placement.stored.sizes}: bytes "
            f"{read.segment.raw_start} to {read.segment.raw_start + read.segment.raw_bytes} are damaged in chunk "
            f"{digest} of checkpoint {self._checkpoint_id} ({damage}); {reported}"
        )


def _destination(request: RegionRead, dtype: str | None, shape: tuple[int, ...]) -> Destination:
    assert dtype is not None  # unknown names have been refused
    if not request.region.within(shape):
        raise ShapeMismatch(f"{request.name}: {request.region} was asked for, but the stored shape is {shape}")
    item_bytes = dtype_named(dtype).item_bytes
    out = request.out.cast("B")
    if out.nbytes != request.region.volume * item_bytes or out.readonly:
        raise LoadError(
            f"{request.name}: {request.region.sizes} of {dtype} take {request.region.volume * item_bytes} bytes, and "
            f"the memory given has {out.nbytes}{' and is read-only' if out.readonly else ''}"
        )
    return Destination(request.region, out, item_bytes)


def _segment_reads(
    pieces: Iterable[PiecePlan], names: Sequence[str], destinations: Sequence[Destination]
) -> list[_SegmentRead]:
    reads: dict[tuple[str, int, int], _SegmentRead] = {}
    for piece in pieces:
        destination = destinations[piece.item]
        is_whole = piece.region == piece.source
        run = contiguous_start(piece.source, destination.region) if is_whole else None
        for segment in piece.segments:
            start = segment.raw_start // destination.item_bytes
            stop = start + segment.raw_bytes // destination.item_bytes
            if not is_whole and not is_wanted(piece.region, piece.source, start, stop):
                continue
            placement = _Placement(names[piece.item], destination, piece.region, piece.source, start, stop)
            key = (segment.chunk.digest, segment.offset, segment.size_bytes)
            read = reads.get(key)
            if read is None:
                direct = (
                    direct_view(destination, piece.region, piece.source, start, stop)
                    if run is None
                    else destination.out[(run + start) * destination.item_bytes : (run + stop) * destination.item_bytes]
                )
                read = reads[key] = _SegmentRead(segment, direct)
            read.placements.append(placement)
    return list(reads.values())


def _landing(read: _SegmentRead) -> memoryview:
    if read.segment.codec is Codec.RAW and read.direct is not None:
        return read.direct
    return _scratch(read.segment.size_bytes)


def _verified(read: _SegmentRead, encoded: memoryview) -> memoryview:
    segment = read.segment
    raw = encoded
    if segment.codec is not Codec.RAW:
        raw = read.direct if read.direct is not None else _scratch(segment.raw_bytes)
        decode_segment(segment.codec, encoded, raw, item_bytes=read.item_bytes)
    if raw.nbytes != segment.raw_bytes or fingerprint(raw) != segment.fingerprint:
        raise IntegrityError("the fingerprint does not match")
    return raw


def _place(read: _SegmentRead, raw: memoryview) -> None:
    placements = read.placements
    if read.direct is not None:
        if raw is not read.direct:
            read.direct[:] = raw
        placements = placements[1:]
    for place in placements:
        scatter(place.destination, place.part, place.stored, place.start, place.stop, raw)


def _scratch(size_bytes: int) -> memoryview:
    return np.empty(size_bytes, np.uint8).data
