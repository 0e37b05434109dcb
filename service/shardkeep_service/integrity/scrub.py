"""The scrub: reads everything that is stored again, at a set rate, the least proven first.

Declared chunks come first (from then on other runs reuse them too), then what was verified longest ago. What was read
is noted at each object, so that a scrub that was interrupted goes on where it was, and several may run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from sqlalchemy import Select, select

from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.integrity.checkpoint_reading import SCRUBBED, check_checkpoint
from shardkeep_service.integrity.chunk_reading import ChunkToRead, chunk_to_read, read_chunks
from shardkeep_service.integrity.coverage import measure_scrub
from shardkeep_service.integrity.findings import settle_findings
from shardkeep_service.integrity.models import Finding
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.worker.loop import Turn

log = structlog.get_logger("shardkeep.integrity")

_CHUNKS_AT_A_TIME: Final = 16
_CHECKPOINTS_AT_A_TIME: Final = 20
_FAILURES_IN_A_ROW: Final = 10
"""After so many objects that the store did not give, it is the store: the turn ends and the next one tries again."""
_NAMED: Final = 1_000


@dataclass(slots=True)
class ScrubReport:
    """What one scrub read and found. `damaged` are the keys of what is damaged or lost at its end, of whatever age;
    `repaired` of what was made again.
    """

    chunks: int = 0
    checkpoints: int = 0
    bytes_read: int = 0
    damaged: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    """Checkpoints that were read and cannot be loaded whole."""
    unread: int = 0
    """Objects that the store did not give."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is read: of one project or of all, and what was last read before `due_before` (database time)."""

    due_before: int
    project_id: str | None = None


def scrub_due(context: ServiceContext, turn: Turn) -> ScrubReport:
    """The worker's turn: all that is declared, or was not read within the scrub's interval."""
    settings = context.settings
    if settings.scrub_bytes_per_second == 0:
        return ScrubReport()
    with context.database.read() as session:
        before = context.database.now(session) - micros(settings.scrub_interval_seconds)
    return Scrub(context, Scope(before), turn, bytes_per_second=settings.scrub_bytes_per_second).run()


class Scrub:
    """One pass. `bytes_per_second` 0 knows no limit."""

    def __init__(
        self,
        context: ServiceContext,
        scope: Scope,
        turn: Turn,
        *,
        bytes_per_second: int,
        on_progress: Callable[[ScrubReport], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._scope = scope
        self._turn = turn
        self._bytes_per_second = bytes_per_second
        self._on_progress = on_progress
        self._report = ScrubReport()
        self._passed_by: set[int | str] = set()
        """What the store did not give in this pass."""
        self._failures = 0

    def run(self) -> ScrubReport:
        """Reads until nothing is due; TurnOver when the turn ends before."""
        self._settle()
        try:
            while self._read_declared() | self._check_checkpoints() or self._read_verified():
                self._on_progress(self._report)
        finally:
            measure_scrub(self._context)
        self._report.damaged = self._open_findings()
        return self._report

    def _open_findings(self) -> list[str]:
        query = select(Finding.object_key).where(Finding.resolved_at.is_(None)).order_by(Finding.id)
        if self._scope.project_id is not None:
            query = query.where(Finding.project_id == self._scope.project_id)
        with self._context.database.read() as session:
            return list(session.scalars(query.limit(_NAMED)))

    def _settle(self) -> None:
        with self._context.database.write() as session:
            settle_findings(session, self._scope.project_id)

    def _read_declared(self) -> bool:
        declared = self._chunks().where(Chunk.verification == Verification.DECLARED.value).order_by(Chunk.id)
        return self._read(declared)

    def _read_verified(self) -> bool:
        verified = self._chunks().where(
            Chunk.verification == Verification.VERIFIED.value, Chunk.verified_at < self._scope.due_before
        )
        return self._read(verified.order_by(Chunk.verified_at, Chunk.id))

    def _chunks(self) -> Select[Chunk]:
        # The concatenation keeps SQLite off its index on state, which is every chunk.
        query = select(Chunk).where(Chunk.state.concat("") == ChunkState.STORED.value)
        if self._scope.project_id is not None:
            query = query.where(Chunk.project_id == self._scope.project_id)
        return query

    def _read(self, query: Select[Chunk]) -> bool:
        """Reads the next few; whether there were any."""
        passed_by = [id_ for id_ in self._passed_by if isinstance(id_, int)]
        with self._context.database.read() as session:
            rows = session.scalars(query.where(Chunk.id.not_in(passed_by)).limit(_CHUNKS_AT_A_TIME)).all()
        chunks = [chunk_to_read(row) for row in rows]
        for batch in _batches(chunks):
            self._read_batch(batch)
        return bool(chunks)

    def _read_batch(self, chunks: Sequence[ChunkToRead]) -> None:
        self._turn.check()
        started = time.monotonic()
        read = read_chunks(self._context, chunks)
        for chunk in read.unread:
            self._pass_by(chunk.chunk_id)
        done = [*read.whole, *read.damaged]
        self._report.chunks += len(done)
        self._spend(sum(chunk.size_bytes for chunk in done), started)

    def _check_checkpoints(self) -> bool:
        """Reads what belongs to the next few checkpoints beside their chunks; whether there were any."""
        query = select(Checkpoint.id).where(
            Checkpoint.state.in_(SCRUBBED), Checkpoint.scrubbed_at < self._scope.due_before
        )
        if self._scope.project_id is not None:
            query = query.where(Checkpoint.project_id == self._scope.project_id)
        passed_by = [id_ for id_ in self._passed_by if isinstance(id_, str)]
        query = query.where(Checkpoint.id.not_in(passed_by)).order_by(Checkpoint.scrubbed_at, Checkpoint.id)
        with self._context.database.read() as session:
            due = session.scalars(query.limit(_CHECKPOINTS_AT_A_TIME)).all()
        for checkpoint_id in due:
            self._check_checkpoint(checkpoint_id)
        return bool(due)

    def _check_checkpoint(self, checkpoint_id: str) -> None:
        self._turn.check()
        started = time.monotonic()
        try:
            read = check_checkpoint(self._context, checkpoint_id)
        except BlobStoreUnavailable as exc:
            log.warning("checkpoint_not_read", checkpoint=checkpoint_id, reason=str(exc))
            self._pass_by(checkpoint_id)
            return
        self._report.checkpoints += 1
        self._report.repaired.extend(read.repaired)
        if read.quarantined:
            self._report.quarantined.append(checkpoint_id)
        self._spend(read.bytes_read, started)

    def _pass_by(self, id_: int | str) -> None:
        self._passed_by.add(id_)
        self._report.unread += 1
        self._failures += 1
        if self._failures >= _FAILURES_IN_A_ROW:
            raise BlobStoreUnavailable(f"{self._failures} objects in a row could not be read; the scrub goes on later")

    def _spend(self, size_bytes: int, started: float) -> None:
        """Keeps to the rate: waits for as long as the bytes should have taken."""
        if size_bytes:
            self._failures = 0
        self._report.bytes_read += size_bytes
        self._context.metrics.scrubbed_bytes.inc(size_bytes)
        if self._bytes_per_second:
            left = size_bytes / self._bytes_per_second - (time.monotonic() - started)
            if left > 0:
                self._turn.wait(left)


def _batches(chunks: Sequence[ChunkToRead], *, limit_bytes: int = 32 << 20) -> list[list[ChunkToRead]]:
    """Cut where their bytes reach the limit: a transaction for many small ones, one each for large ones."""
    batches: list[list[ChunkToRead]] = []
    size = limit_bytes
    for chunk in chunks:
        if size + chunk.size_bytes > limit_bytes:
            batches.append([])
            size = 0
        batches[-1].append(chunk)
        size += chunk.size_bytes
    return batches
