"""What goes on beside collection, one small step at a time.

Each actor is a generator that yields between any two of its transactions and store requests, so that anything may
happen there, for as long as it likes. Dropping one is its death.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from shardkeep.format.chunks import ChunkRef
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep.protocol.messages import BeginAttempt, ChunkOffer, DecideResume, NegotiateChunks, OpenCheckpoint
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue import commit_records
from shardkeep_service.checkpoints.arrival import Arrival, ArrivalWriter, Arrived, check_manifest
from shardkeep_service.checkpoints.commit import Committer, Ending
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.opening import Opening, OpeningWriter
from shardkeep_service.checkpoints.reading import find_readable
from shardkeep_service.checkpoints.validation import validate
from shardkeep_service.checkpoints.validator import Validator
from shardkeep_service.checkpoints.write_batch import WriteBatch
from shardkeep_service.chunks.ingest import ChunkIngest, _Stored
from shardkeep_service.chunks.negotiation import Negotiator
from shardkeep_service.chunks.reading import find_chunk
from shardkeep_service.errors import Refusal
from shardkeep_service.runs.attempts import begin_attempt
from shardkeep_service.runs.resume import decide_resume
from shardkeep_service.runs.service import ensure_run
from shardkeep_service.service_context import ServiceContext
from tests.unit.service.training import Packed, Part, pack

PRINCIPAL: Final = Principal("tok_0", "machine", Scope.ADMIN, None)
OWNER: Final = "machine"
ANOTHER: Final = "another process"
RANKS: Final = 2
Item = TypeVar("Item")


def contents(numbers: Sequence[int], step: int) -> list[Packed]:
    """What each rank saves: one tensor whose bytes are one of a few, so that saves share chunks all the time."""
    return [
        pack(
            [Part(f"t{rank}", (2, 2), 0, np.full((2, 2), number, np.float32))],
            rank=rank,
            world_size=RANKS,
            step=step,
            metrics={"loss": float(number)},
        )
        for rank, number in enumerate(numbers)
    ]


@dataclass(slots=True)
class Job:
    """A run as its job sees it. `saves` counts the saves of the current attempt."""

    name: str
    attempt: str = ""
    saves: int = 0


@dataclass(slots=True)
class Service:
    """The parts of a service that actors use, in one process and without a network."""

    context: ServiceContext
    negotiator: Negotiator = field(init=False)
    ingest: ChunkIngest = field(init=False)

    def __post_init__(self) -> None:
        self.negotiator = Negotiator(self.context)
        self.ingest = ChunkIngest(self.context)

    def open(self, job: Job, save: int, step: int, rank: int) -> str:
        body = OpenCheckpoint(save=save, step=step, rank=rank, world_size=RANKS)
        batch = WriteBatch(self.context.database, OpeningWriter(self.context))
        return batch.submit(Opening(PRINCIPAL, job.attempt, body)).checkpoint_id

    def count(self, arrival: Arrival) -> Arrived:
        return WriteBatch(self.context.database, ArrivalWriter(self.context, OWNER)).submit(arrival)

    def begin(self, job: Job, *, checkpoint: str | None, fresh: bool) -> None:
        """A new attempt that has decided; it may be refused."""
        ensure_run(self.context, PRINCIPAL, "project", job.name)
        body = BeginAttempt(launch_id=new_launch_id(), ordinal=0, world_size=RANKS, labels={})
        job.attempt, job.saves = begin_attempt(self.context, PRINCIPAL, "project", job.name, body).id, 0
        try:
            decide_resume(self.context, PRINCIPAL, job.attempt, DecideResume(checkpoint_id=checkpoint, fresh=fresh))
        except Refusal:
            decide_resume(self.context, PRINCIPAL, job.attempt, DecideResume(fresh=True))


def saving(
    service: Service, job: Job, numbers: Sequence[int], step: int, committed: Callable[[str], None]
) -> Iterator[None]:
    """A save of all ranks, one after the other; `committed` is told its id. Ends early where it is refused."""
    job.saves += 1
    save, packed = job.saves, contents(numbers, step)
    ids = {service.open(job, save, step, rank) for rank in range(RANKS)}
    yield
    [checkpoint_id] = ids
    for rank, one in enumerate(packed):
        yield from _rank_saves(service, checkpoint_id, rank, one)
    yield from _validating(service, checkpoint_id, committed)


def careless_saving(
    service: Service, job: Job, numbers: Sequence[int], step: int, committed: Callable[[str], None]
) -> Iterator[None]:
    """Like `saving`, by a client that never asks what is present: it names what it believes is there."""
    job.saves += 1
    save, packed = job.saves, contents(numbers, step)
    ids = {service.open(job, save, step, rank) for rank in range(RANKS)}
    yield
    [checkpoint_id] = ids
    for rank, one in enumerate(packed):
        yield from _hand_in(service, checkpoint_id, rank, one)
    yield from _validating(service, checkpoint_id, committed)


def _rank_saves(service: Service, checkpoint_id: str, rank: int, one: Packed) -> Iterator[None]:
    offers = [ChunkOffer(digest=ref.digest, size=ref.size_bytes, crc64=ref.crc64) for ref, _ in one.chunks]
    request = NegotiateChunks(rank=rank, chunks=offers)
    answer = service.negotiator.negotiate(PRINCIPAL, checkpoint_id, request)
    yield
    present = {chunk.digest for chunk in answer.chunks if chunk.present}
    for ref, data in one.chunks:
        if ref.digest not in present:
            yield from _upload(service, checkpoint_id, rank, ref, data)
    yield from _hand_in(service, checkpoint_id, rank, one)


def _upload(service: Service, checkpoint_id: str, rank: int, ref: ChunkRef, data: bytes) -> Iterator[None]:
    """As `ChunkIngest.store` does it, in its steps."""
    ingest, body = service.ingest, memoryview(data)
    crc64 = f"{ref.crc64:016x}"
    upload = ingest.admit(PRINCIPAL, checkpoint_id, digest=ref.digest, crc64=crc64, rank=rank, size_bytes=len(data))
    yield
    key, number = (None, upload.number) if upload.present else ingest._put(upload, body)
    yield
    ingest._records.submit(_Stored(upload, len(body), key, number))
    yield


def _hand_in(service: Service, checkpoint_id: str, rank: int, one: Packed) -> Iterator[None]:
    for _ in range(3):
        try:
            arrival = check_manifest(service.context, PRINCIPAL, checkpoint_id, rank, memoryview(one.manifest))
            break
        except Refusal as refusal:
            if refusal.code is not ErrorCode.CHUNKS_MISSING:
                raise
        yield
        for ref, data in one.chunks:
            yield from _upload(service, checkpoint_id, rank, ref, data)
    else:
        return
    yield
    if isinstance(arrival, Arrival):
        service.context.blob_store.put(arrival.object_key, memoryview(one.manifest))
        yield
        service.count(arrival)
        yield


def _validating(service: Service, checkpoint_id: str, committed: Callable[[str], None]) -> Iterator[None]:
    indexes = IndexCache(service.context.blob_store)
    outcome = validate(service.context, indexes, checkpoint_id, keep_alive=lambda: None)
    yield
    ending = Committer(service.context, OWNER).end(checkpoint_id, outcome)
    if ending is Ending.COMMITTED:
        committed(checkpoint_id)


def taking_over(service: Service, committed: Callable[[str], None]) -> Iterator[None]:
    """Another process ends the validations that were left, also those that only seem to be."""
    indexes = IndexCache(service.context.blob_store)
    validator = Validator(service.context, indexes, owner=ANOTHER)
    with service.context.database.write() as session:
        ids = validator._take(session, also_live=True)
    yield
    for checkpoint_id in ids:
        outcome = validate(service.context, indexes, checkpoint_id, keep_alive=lambda: None)
        yield
        if Committer(service.context, ANOTHER).end(checkpoint_id, outcome) is Ending.COMMITTED:
            committed(checkpoint_id)
        yield


@dataclass(frozen=True, slots=True)
class Expected:
    """The chunks of a committed checkpoint, by digest."""

    chunks: dict[str, bytes]


def reading(service: Service, checkpoint_id: str, expected: Expected) -> Iterator[None]:
    """A reader between its load plan and its last byte. What it gets is right, or it is told that it is gone."""
    try:
        with service.context.database.read() as session:
            find_readable(session, PRINCIPAL, checkpoint_id)
        yield
        for digest, data in expected.chunks.items():
            chunk = find_chunk(service.context, PRINCIPAL, checkpoint_id, digest)
            yield
            pieces = service.context.blob_store.stream(chunk.object_key, 0, chunk.size_bytes, piece_bytes=1 << 20)
            assert b"".join(bytes(piece) for piece in pieces) == data, "a reader got other bytes"
            yield
    except (Refusal, BlobMissing):
        with service.context.database.read() as session:
            state = find_state(session, checkpoint_id)
        assert state != "committed", "a reader of a committed checkpoint was turned away"


def find_state(session: Any, checkpoint_id: str) -> str | None:
    from shardkeep_service.checkpoints.models import Checkpoint

    checkpoint = session.get(Checkpoint, checkpoint_id)
    return None if checkpoint is None else str(checkpoint.state)


def recording(context: ServiceContext) -> Iterator[None]:
    """The outbox, in its steps: also what is put after its checkpoint was purged."""
    while batch := commit_records._pending(context):
        yield
        done = []
        for work in batch:
            if commit_records._write(context, work):
                done.append(work)
            yield
        gone = commit_records._tick_off(context, done)
        yield
        commit_records._remove_records_of_purged(context, gone)
        if not done:
            return
