"""The tables of checkpoints, sessions, manifests and the outbox."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, LargeBinary, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, BigInt, Id, Micros


def _partial(name: str, *columns: str, where: str) -> Index:
    """An index of the few rows that meet a condition; on SQLite a boolean is a number."""
    on_sqlite = f"{where} = 1" if where.isidentifier() else where
    return Index(name, *columns, sqlite_where=text(on_sqlite), postgresql_where=text(where))


class Checkpoint(Base):
    """What one save keeps. (attempt_id, save) is the checkpoint; `version` counts changes and is the ETag."""

    __tablename__ = "checkpoints"
    __table_args__ = (
        UniqueConstraint("attempt_id", "save"),
        UniqueConstraint("run_id", "sequence"),
        UniqueConstraint("run_id", "number"),
        Index("ix_checkpoints_opened_at_id", "opened_at", "id"),
        Index("ix_checkpoints_state_deadline", "state", "deadline"),
        Index("ix_checkpoints_scrubbed_at", "scrubbed_at"),
        Index("ix_checkpoints_state_opened_at_id", "state", "opened_at", "id"),
        Index("ix_checkpoints_project_id_opened_at_id", "project_id", "opened_at", "id"),
        Index("ix_checkpoints_project_id_state_opened_at_id", "project_id", "state", "opened_at", "id"),
        Index("ix_checkpoints_run_id_state_number", "run_id", "state", "number"),
        # Covers the overview's sums over time: a year of saves is read from the index alone.
        Index("ix_checkpoints_committed_at", "committed_at", "project_id", "run_id", "new_bytes", "raw_bytes"),
        _partial("ix_checkpoints_run_id_committed_sequence", "run_id", "sequence", where="state = 'committed'"),
        # Rows of purged checkpoints stay for good: in a run that keeps few they are nearly all.
        _partial("ix_checkpoints_run_id_number_kept", "run_id", "number", where="purged_at IS NULL"),
        _partial("ix_checkpoints_pinned", "opened_at", "id", where="pinned"),
        _partial("ix_checkpoints_quarantined", "state", "project_id", where="quarantined"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"))
    run_id: Mapped[Id] = mapped_column(ForeignKey("runs.id"))
    attempt_id: Mapped[Id] = mapped_column(ForeignKey("attempts.id"))
    number: Mapped[int] = mapped_column(BigInt)
    """Counts the checkpoints opened in the run: the order of lists, which no clock can upset."""
    save: Mapped[int] = mapped_column(BigInt)
    step: Mapped[int] = mapped_column(BigInt)
    world_size: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    parent_id: Mapped[Id | None] = mapped_column(ForeignKey("checkpoints.id"))
    sequence: Mapped[int | None] = mapped_column(BigInt)
    opened_at: Mapped[Micros]
    deadline: Mapped[Micros]
    """By then every rank must have opened."""
    arrived: Mapped[int] = mapped_column(default=0)
    validation_owner: Mapped[str | None] = mapped_column(String(40))
    validation_until: Mapped[Micros | None]
    committed_at: Mapped[Micros | None]
    index_key: Mapped[str | None] = mapped_column(String(300))
    index_digest: Mapped[str | None] = mapped_column(String(64))
    raw_bytes: Mapped[int | None] = mapped_column(BigInt)
    stored_bytes: Mapped[int | None] = mapped_column(BigInt)
    new_bytes: Mapped[int | None] = mapped_column(BigInt)
    tensors: Mapped[int | None]
    metrics: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    environment: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    report: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    abort: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    pinned: Mapped[bool] = mapped_column(default=False)
    pin_reason: Mapped[str | None] = mapped_column(String(2000))
    quarantined: Mapped[bool] = mapped_column(default=False)
    scrubbed_at: Mapped[Micros] = mapped_column(default=0, server_default="0")
    """When its index, manifests and records were last read again; 0 for never."""
    deleted_at: Mapped[Micros | None]
    deleted_with: Mapped[Id | None]
    """The run it was deleted with, and is restored with; None for one deleted by itself."""
    deletion_reason: Mapped[str | None] = mapped_column(String(1000))
    """Why retention deleted it; None where somebody did."""
    purged_at: Mapped[Micros | None]
    """When the last of its objects and rows went; None in state `purged` while they are being removed."""
    version: Mapped[int] = mapped_column(default=1)


class CheckpointTag(Base):
    """One tag of one checkpoint."""

    __tablename__ = "checkpoint_tags"
    __table_args__ = (
        Index("ix_checkpoint_tags_run_id_tag", "run_id", "tag"),
        Index("ix_checkpoint_tags_tag_checkpoint_id", "tag", "checkpoint_id"),
    )

    checkpoint_id: Mapped[Id] = mapped_column(ForeignKey("checkpoints.id"), primary_key=True)
    tag: Mapped[str] = mapped_column(String(128), primary_key=True)
    run_id: Mapped[Id]
    set_at: Mapped[Micros]


class RankSession(Base):
    """One rank's part in an open checkpoint: a lease on database time."""

    __tablename__ = "sessions"

    checkpoint_id: Mapped[Id] = mapped_column(ForeignKey("checkpoints.id"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    opened_at: Mapped[Micros]
    lease_until: Mapped[Micros]
    missing_chunks: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    """Digests that validation found lost or damaged: the rank uploads them and its manifest again."""
    offered_bytes: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")
    """Stored bytes of the chunks it has offered so far."""
    present_bytes: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")
    """Of these, what was stored already."""


class ManifestRow(Base):
    """One arrived manifest: where it is, what it says (by digest) and which chunks it needs."""

    __tablename__ = "manifests"

    checkpoint_id: Mapped[Id] = mapped_column(ForeignKey("checkpoints.id"), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    content_digest: Mapped[str] = mapped_column(String(64))
    body_digest: Mapped[str] = mapped_column(String(64))
    object_key: Mapped[str] = mapped_column(String(300))
    size_bytes: Mapped[int] = mapped_column(BigInt)
    chunk_ids: Mapped[bytes] = mapped_column(LargeBinary)
    """Ids of the chunks it names, sorted, as little-endian 64-bit integers."""
    arrived_at: Mapped[Micros]


class OutboxEntry(Base):
    """Work that follows a transaction: writing the record of what it changed to the blob store."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(String(40))
    subject_id: Mapped[Id] = mapped_column(default="", server_default="")
    """What the record is of: a checkpoint, attempt, run or project."""
    checkpoint_id: Mapped[Id | None] = mapped_column(ForeignKey("checkpoints.id"))
    """Written by the first schema's service only; `subject_id` has it too."""
    created_at: Mapped[Micros]
    done_at: Mapped[Micros | None] = mapped_column(index=True)
