"""From staged segments to packed chunks: fingerprint, skip what the parent has, encode, pack in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from shardkeep.format.codecs import Codec, encode_segment
from shardkeep.format.fingerprints import fingerprint
from shardkeep.planning.packing import ChunkPacker, PackingGroup
from shardkeep.planning.reuse import History, reusable
from shardkeep.uploader.arena import Arena
from shardkeep.uploader.codec_choice import PROBE_CHUNK_BYTES, CodecChooser
from shardkeep.uploader.staged import StagedChunk, StagedSegment
from shardkeep.uploader.work_queue import Outstanding


class Preparation:
    """Prepares batches of segments in any order and packs them in the order they were staged.

    `on_chunk` gets each chunk as soon as it is packed; a batch ends in `outstanding` only after its chunks have begun.
    """

    def __init__(
        self,
        *,
        arena: Arena,
        codecs: CodecChooser,
        outstanding: Outstanding,
        keep_bytes: Callable[[], bool],
        on_chunk: Callable[[StagedChunk], None],
    ) -> None:
        self.history = History.empty()
        self._arena = arena
        self._codecs = codecs
        self._outstanding = outstanding
        self._keep_bytes = keep_bytes
        self._on_chunk = on_chunk
        self._order = threading.Lock()
        self._ready: dict[int, Sequence[StagedSegment]] = {}
        self._packer: ChunkPacker[StagedSegment] = ChunkPacker()
        self._next = 0
        self._last: int | None = None

    def prepare(self, number: int, batch: Sequence[StagedSegment]) -> None:
        """Work on batch `number`; numbers count from 0 in the order of staging."""
        for segment in batch:
            self._prepare(segment)
        with self._order:
            self._ready[number] = batch
            while self._next in self._ready:
                for segment in self._ready.pop(self._next):
                    self._pack(segment)
                self._next += 1
            if self._next == self._last:
                self._flush()
        self._outstanding.end()

    def end_after(self, batches: int) -> None:
        """So many batches there are in all: flush after the last."""
        with self._order:
            self._last = batches
            if self._next == batches:
                self._flush()

    def flush(self) -> None:
        """Send what is packed, full or not."""
        with self._order:
            self._flush()

    def repack(self, segments: Sequence[StagedSegment]) -> None:
        """Send segments anew whose reused chunks the service has lost; their bytes must be held."""
        with self._order:
            for segment in segments:
                segment.reused = None
                self._encode(segment)
                self._pack(segment)
            self._flush()

    def _prepare(self, segment: StagedSegment) -> None:
        segment.fingerprint = fingerprint(segment.stored)
        if segment.slice.witness:
            self._release(segment)
            return
        stored = self.history.segments_of(segment.slice.name, segment.slice.dtype.name, segment.slice.region)
        segment.reused = reusable(stored, segment.position, segment.fingerprint)
        if segment.reused is None:
            self._encode(segment)
        elif not self._keep_bytes():
            self._release(segment)

    def _encode(self, segment: StagedSegment) -> None:
        dtype = segment.slice.dtype
        codec = self._codecs.codec_for(dtype, segment.slice.group, segment.stored)
        if codec is not Codec.RAW:
            encoded = encode_segment(codec, segment.stored, dtype.item_bytes)
            if encoded.codec is not Codec.RAW:
                segment.stored[: len(encoded.data)] = encoded.data
                segment.stored = segment.stored[: len(encoded.data)]
            segment.codec = encoded.codec
        segment.size_bytes = segment.stored.nbytes

    def _pack(self, segment: StagedSegment) -> None:
        if segment.slice.witness or segment.reused is not None:
            return
        full = self._packer.add(segment.slice.group, segment, segment.size_bytes)
        if full is not None:
            self._emit(StagedChunk(full))
        if self._codecs.wants_probe and self._packer.begun_bytes(segment.slice.group) >= PROBE_CHUNK_BYTES:
            self._send_probe(segment.slice.group)

    def _send_probe(self, group: PackingGroup) -> None:
        packed = self._packer.close(group)
        if packed is not None:
            self._emit(StagedChunk(packed))
            self._codecs.probe_sent()

    def _flush(self) -> None:
        for packed in self._packer.flush():
            self._emit(StagedChunk(packed))

    def _emit(self, chunk: StagedChunk) -> None:
        for segment, offset in chunk.packed.segments:
            segment.chunk, segment.offset = chunk, offset
        self._outstanding.begin()
        self._on_chunk(chunk)

    def _release(self, segment: StagedSegment) -> None:
        extent, segment.extent = segment.extent, None
        if extent is not None:
            self._arena.release(extent)
