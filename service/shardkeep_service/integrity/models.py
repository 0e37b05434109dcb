"""The table of findings: stored objects that were found damaged or lost."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import JSON, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, BigInt, Id, Micros


class ObjectKind(StrEnum):
    """What a damaged object is."""

    CHUNK = "chunk"
    MANIFEST = "manifest"
    INDEX = "index"
    COMMIT_RECORD = "commit_record"


class Damage(StrEnum):
    """What is wrong with it."""

    DAMAGED = "damaged"
    LOST = "lost"


class Finding(Base):
    """One object found damaged or lost. `resolved_at` is NULL until it is healed, rebuilt or no longer needed."""

    __tablename__ = "integrity_findings"
    __table_args__ = (
        Index("ix_integrity_findings_resolved_at_id", "resolved_at", "id"),
        Index("ix_integrity_findings_object_key", "object_key"),
    )

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    project_id: Mapped[Id]
    checkpoint_id: Mapped[Id]
    """The checkpoint whose object it is; of a chunk, the one that brought it."""
    kind: Mapped[str] = mapped_column(String(16))
    damage: Mapped[str] = mapped_column(String(16))
    object_key: Mapped[str] = mapped_column(String(300))
    digest: Mapped[str | None] = mapped_column(String(64))
    """What the object's bytes should have; None for a commit record."""
    detail: Mapped[str] = mapped_column(String(1000))
    harmed: Mapped[list[str]] = mapped_column(JSON, default=list)
    """Ids of the checkpoints that needed it when it was found; of very many the first ones. To be shown: to find by one
    there is `FindingCheckpoint`.
    """
    found_at: Mapped[Micros]
    resolved_at: Mapped[Micros | None]
    resolution: Mapped[str | None] = mapped_column(String(1000))


class FindingCheckpoint(Base):
    """A checkpoint that a finding is about: its own manifest, index or record, or a chunk that it needed."""

    __tablename__ = "finding_checkpoints"

    checkpoint_id: Mapped[Id] = mapped_column(primary_key=True)
    finding_id: Mapped[int] = mapped_column(
        BigInt, ForeignKey("integrity_findings.id"), primary_key=True, autoincrement=False
    )
