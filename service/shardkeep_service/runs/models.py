"""The tables of runs, attempts and inventories."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, BigInt, Id, Micros


class Run(Base):
    """One training effort. `current_attempt_id` is the fence, `sequence` the last commit sequence given out."""

    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("project_id", "name"),
        Index("ix_runs_name_id", "name", "id"),
        Index("ix_runs_created_at_id", "created_at", "id"),
        Index("ix_runs_last_committed_step_id", "last_committed_step", "id"),
        Index("ix_runs_last_committed_at_id", "last_committed_at", "id"),
        Index("ix_runs_stored_bytes_id", "stored_bytes", "id"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[Micros]
    current_attempt_id: Mapped[Id | None]
    attempts: Mapped[int] = mapped_column(default=0)
    opened: Mapped[int] = mapped_column(default=0)
    """Checkpoints opened so far: the `number` of the newest."""
    sequence: Mapped[int] = mapped_column(default=0)
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    """Counts deletions and restorations, and is the ETag of both."""
    deleted_at: Mapped[Micros | None]
    deleted_name: Mapped[str | None] = mapped_column(String(128))
    """Its name when it was deleted. `name` is then one that nobody can give, so that the name is free."""
    deleted_with: Mapped[Id | None]
    """The project it was deleted with, and is restored with; None for one deleted by itself."""
    # What follows sums up the run's committed checkpoints. Triggers of the database keep it (revision 0007), whoever
    # writes, also code that knows nothing of it: read it by a query of columns, never write it.
    last_committed_step: Mapped[int | None] = mapped_column(BigInt)
    """Of the one with the highest sequence, as the next two."""
    last_committed_at: Mapped[Micros | None]
    last_checkpoint_id: Mapped[Id | None]
    committed_checkpoints: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")
    stored_bytes: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")
    """What they brought to the store: the sum of `new_bytes`."""
    raw_bytes: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")
    """What they hold, each counted whole."""
    named_bytes: Mapped[int] = mapped_column(BigInt, default=0, server_default="0")
    """What they name in the store, each counted whole: the sum of the checkpoints' `stored_bytes`."""

    @property
    def shown_name(self) -> str:
        """Its name, also after it was deleted."""
        return self.deleted_name or self.name


class Attempt(Base):
    """One launch or rollback of a run. `decision` is NULL until a rank asked, then `fresh` or a checkpoint id."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("run_id", "launch_id", "ordinal"), UniqueConstraint("run_id", "number"))

    id: Mapped[Id] = mapped_column(primary_key=True)
    run_id: Mapped[Id] = mapped_column(ForeignKey("runs.id"))
    number: Mapped[int]
    launch_id: Mapped[str] = mapped_column(String(32))
    ordinal: Mapped[int]
    world_size: Mapped[int]
    labels: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[Micros]
    decision: Mapped[str | None] = mapped_column(String(40))
    decided_at: Mapped[Micros | None]
    passed_over: Mapped[list[Any]] = mapped_column(JSON, default=list)
    """What the decision passed over, as answered to the first rank: every rank gets the same."""
    save_requests: Mapped[int] = mapped_column(default=0, server_default="0")
    """Counts the requests to save now."""
    save_requested_at: Mapped[Micros | None]
    """When the last of them was made."""
    save_requested_by: Mapped[str | None] = mapped_column(String(200))
    """The name of the token that made it."""
    save_request_checkpoint_id: Mapped[Id | None]
    """The checkpoint that took it up; None while it waits."""


class Inventory(Base):
    """What one rank holds as plain tensors in one layout of an attempt."""

    __tablename__ = "inventories"
    __table_args__ = (Index("ix_inventories_attempt_id_layout", "attempt_id", "layout"),)

    attempt_id: Mapped[Id] = mapped_column(ForeignKey("attempts.id"), primary_key=True)
    layout: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    content: Mapped[bytes] = mapped_column(LargeBinary)
    """The posted list, zstd-compressed JSON."""
