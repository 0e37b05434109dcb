"""From packed chunks to stored ones: hash, offer in batches, send what the store lacks.

Where to send is the service's answer: to itself, or to the object store. A store that cannot be used from here is given
up for the rest of the attempt, and what was to go there is offered again and streamed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from shardkeep.connection.service_client import ServiceClient
from shardkeep.connection.store_answers import needs_another_target
from shardkeep.connection.target_lifetimes import HeldTarget
from shardkeep.errors import ConnectionFailed, FormatError, ServiceError
from shardkeep.format.chunks import chunk_ref
from shardkeep.protocol.messages import ChunkOffer
from shardkeep.protocol.versions import NEGOTIATE_LIMIT
from shardkeep.uploader.codec_choice import UploadSpeed
from shardkeep.uploader.staged import StagedChunk
from shardkeep.uploader.work_queue import WorkQueue

_FRESH_REFUSALS: Final = 3
"""Of targets just received for one chunk, before the store is given up."""
_TARGETS_AHEAD: Final = 2
"""Targets waiting for each sender. While there are so many, offers gather instead of going one by one."""


class Sending:
    """Chunks of one rank's save on their way to the store. Thread-safe.

    Offers gather while one is being answered and while the senders have enough to do: a save of many chunks costs few
    requests, and the first chunk still goes at once.
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
        self._waiting = 0
        """Chunks that have a target and no sender yet."""
        self._refusals: Counter[StagedChunk] = Counter()
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
        self._offer_soon()

    def _hash(self, chunk: StagedChunk) -> None:
        chunk.ref = chunk_ref(chunk.parts())
        self.offer(chunk)

    def _offer_soon(self) -> None:
        with self._lock:
            enough = self._waiting >= _TARGETS_AHEAD * self._senders.workers
            if not self._to_offer or self._is_offering or (enough and len(self._to_offer) < NEGOTIATE_LIMIT):
                return
            self._is_offering = True
        self._senders.put(self._offer_waiting, first=True)

    def _offer_waiting(self) -> None:
        with self._lock:
            chunks, self._to_offer = self._to_offer[:NEGOTIATE_LIMIT], self._to_offer[NEGOTIATE_LIMIT:]
        try:
            self._negotiate(chunks)
        finally:
            with self._lock:
                self._is_offering = False
        self._offer_soon()

    def _negotiate(self, chunks: Sequence[StagedChunk]) -> None:
        direct = self._service.direct.allowed
        answers = self._service.negotiate(
            self._checkpoint_id, self._rank, [_offer_of(chunk) for chunk in chunks], direct=direct
        ).chunks
        if len(answers) != len(chunks):
            raise FormatError(f"the service answered {len(answers)} of {len(chunks)} offered chunks")
        for chunk, answer in zip(chunks, answers, strict=True):
            if answer.present:
                self._speed.nothing_to_send()
                self._on_stored(chunk)
            elif answer.target is not None:
                self._put_later(chunk, HeldTarget(answer.target, asked_direct=direct))
            else:
                raise FormatError(f"the service neither has chunk {answer.digest} nor says where to send it")

    def _put_later(self, chunk: StagedChunk, held: HeldTarget) -> None:
        with self._lock:
            self._waiting += 1
        # One that was refused goes first: if it is again, its age is not the reason.
        self._senders.put(lambda: self._put(chunk, held), first=chunk in self._refusals)

    def _put(self, chunk: StagedChunk, held: HeldTarget) -> None:
        with self._lock:
            self._waiting -= 1
        self._offer_soon()
        if held.is_expiring() or not held.is_wanted(direct=self._service.direct.allowed):
            self.offer(chunk)
            return
        assert chunk.ref is not None
        started = time.monotonic()
        try:
            self._service.put_chunk(held.target, chunk.ref, chunk.parts(), stop=self._stop)
        except (ServiceError, ConnectionFailed) as failure:
            self._settle(failure, chunk, held, started=started)
            return
        self._speed.sent(chunk.ref.size_bytes, started, time.monotonic())
        with self._lock:
            self.sent_bytes += chunk.ref.size_bytes
        self._on_stored(chunk)

    def _settle(
        self, failure: ServiceError | ConnectionFailed, chunk: StagedChunk, held: HeldTarget, *, started: float
    ) -> None:
        """Offer the chunk again where another target may be taken, or raise."""
        if not held.is_direct or held.is_last_resort or self._stop.is_set() or self._service.transport.is_closed:
            raise failure
        if isinstance(failure, ServiceError):
            if not needs_another_target(failure):
                raise failure
            self._refusals[chunk] += held.was_fresh(started)
        if isinstance(failure, ConnectionFailed) or self._refusals[chunk] >= _FRESH_REFUSALS:
            self._service.direct.give_up(held.target.url, failure)
        self.offer(chunk)


def _offer_of(chunk: StagedChunk) -> ChunkOffer:
    assert chunk.ref is not None
    return ChunkOffer(digest=chunk.ref.digest, size=chunk.ref.size_bytes, crc64=chunk.ref.crc64)
