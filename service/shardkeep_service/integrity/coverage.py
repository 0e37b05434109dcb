"""How far the scrub is: what of the stored bytes was compared lately, what never, and what is damaged."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.database.session_time import session_now
from shardkeep_service.integrity.models import Finding
from shardkeep_service.moments import MICROS_PER_SECOND, micros
from shardkeep_service.service_context import ServiceContext


@dataclass(frozen=True, slots=True)
class Coverage:
    """Bytes of live chunks, by how they were checked. `oldest_verified_at` is database time; None without any."""

    stored_bytes: int
    verified_bytes: int
    """Compared with their digest within the scrub's interval."""
    declared_bytes: int
    """Never compared: the store vouched for size and checksum."""
    oldest_verified_at: int | None
    open_findings: int

    @property
    def ratio(self) -> float:
        """Verified of stored; 1 of nothing."""
        return self.verified_bytes / self.stored_bytes if self.stored_bytes else 1.0


def load_coverage(session: Session, *, interval_seconds: float, project_ids: frozenset[str] | None = None) -> Coverage:
    """Of some projects, or (None) of all. One pass over the rows of the chunks."""
    since = session_now(session) - micros(interval_seconds)
    lately = (Chunk.verification == Verification.VERIFIED.value) & (Chunk.verified_at >= since)
    declared = Chunk.verification == Verification.DECLARED.value
    size = func.sum(Chunk.size_bytes)
    query = select(
        func.coalesce(size, 0),
        func.coalesce(size.filter(lately), 0),
        func.coalesce(size.filter(declared), 0),
        func.min(Chunk.verified_at),
    ).where(Chunk.state == ChunkState.STORED.value)
    findings = select(func.count()).select_from(Finding).where(Finding.resolved_at.is_(None))
    if project_ids is not None:
        query = query.where(Chunk.project_id.in_(project_ids))
        findings = findings.where(Finding.project_id.in_(project_ids))
    stored, verified, unverified, oldest = session.execute(query).one()
    return Coverage(int(stored), int(verified), int(unverified), oldest, session.scalars(findings).one())


def measure_scrub(context: ServiceContext) -> None:
    """Sets the gauges of the scrub."""
    metrics = context.metrics
    with context.database.read() as session:
        coverage = load_coverage(session, interval_seconds=context.settings.scrub_interval_seconds)
        now = context.database.now(session)
    oldest = now if coverage.oldest_verified_at is None else coverage.oldest_verified_at
    metrics.scrub_coverage.set(coverage.ratio)
    metrics.declared_bytes.set(coverage.declared_bytes)
    metrics.scrub_lag.set(max(0, now - oldest) / MICROS_PER_SECOND)
    metrics.open_findings.set(coverage.open_findings)
