"""From packed chunks to stored ones: hash, offer in batches, send what the service lacks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from shardkeep.connection.service_client import ServiceClient
from shardkeep.connection.target_lifetimes import HeldTarget
from shardkeep.errors import FormatError
from shardkeep.format.chunks import chunk_ref
from shardkeep.protocol.messages import ChunkOffer, Target
from shardkeep.protocol.versions import NEGOTIATE_LIMIT
from shardkeep.uploader.codec_choice import UploadSpeed
from shardkeep.uploader.staged import StagedChunk
from shardkeep.uploader.work_queue import WorkQueue


class Sending:
    """Chunks of one rank's save on their way to the store. Thread-safe.

    Offers gather while one is being answered, so their number adapts to the distance of the service.
    """

    def __init__(
        self,
        service: ServiceClient,
        *,
        rank: int,
        hashers: WorkQueue,
        senders: WorkQueue,
        speed: UploadSpeed,
        stop: threading.Event,
        on_stored: Callable[[StagedChunk], None],
    ) -> None:
        self._service = service
        self._rank = rank
        self._hashers = hashers
        self._senders = senders
        self._speed = speed
        self._stop = stop
        self._on_stored = on_stored
        self._checkpoint_id = ""
        self._lock = threading.Lock()
        self._to_offer: list[StagedChunk] = []
        self._is_offering = False
        self.sent_bytes = 0

    def open(self, checkpoint_id: str) -> None:
        """Where chunks belong; nothing is sent before."""
        self._checkpoint_id = checkpoint_id

    def send(self, chunk: StagedChunk) -> None:
        """Hash, offer and send one chunk; `on_stored` follows."""
        self._hashers.put(lambda: self._hash(chunk), first=True)

    def offer(self, chunk: StagedChunk) -> None:
        """Offer a chunk that has its name already, perhaps again."""
        with self._lock:
            self._to_offer.append(chunk)
            if self._is_offering:
                return
            self._is_offering = True
        self._senders.put(self._offer_waiting, first=True)

    def _hash(self, chunk: StagedChunk) -> None:
        chunk.ref = chunk_ref(chunk.parts())
        self.offer(chunk)

    def _offer_waiting(self) -> None:
        with self._lock:
            chunks, self._to_offer = self._to_offer[:NEGOTIATE_LIMIT], self._to_offer[NEGOTIATE_LIMIT:]
            if not chunks:
                self._is_offering = False
                return
        self._negotiate(chunks)
        self._senders.put(self._offer_waiting, first=True)

    def _negotiate(self, chunks: Sequence[StagedChunk]) -> None:
        answers = self._service.negotiate(
            self._checkpoint_id, self._rank, [_offer_of(chunk) for chunk in chunks]
        ).chunks
        if len(answers) != len(chunks):
            raise FormatError(f"the service answered {len(answers)} of {len(chunks)} offered chunks")
        for chunk, answer in zip(chunks, answers, strict=True):
            if answer.present:
                self._speed.nothing_to_send()
                self._on_stored(chunk)
            elif answer.target is not None:
                self._put_later(chunk, answer.target)
            else:
                raise FormatError(f"the service neither has chunk {answer.digest} nor says where to send it")

    def _put_later(self, chunk: StagedChunk, target: Target) -> None:
        held = HeldTarget(target)
        self._senders.put(lambda: self._put(chunk, held))

    def _put(self, chunk: StagedChunk, held: HeldTarget) -> None:
        if held.is_expiring():
            self.offer(chunk)
            return
        assert chunk.ref is not None
        started = time.monotonic()
        self._service.put_chunk(held.target, chunk.ref, chunk.parts(), stop=self._stop)
        self._speed.sent(chunk.ref.size_bytes, started, time.monotonic())
        with self._lock:
            self.sent_bytes += chunk.ref.size_bytes
        self._on_stored(chunk)


def _offer_of(chunk: StagedChunk) -> ChunkOffer:
    assert chunk.ref is not None
    return ChunkOffer(digest=chunk.ref.digest, size=chunk.ref.size_bytes, crc64=chunk.ref.crc64)
