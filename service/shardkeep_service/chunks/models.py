"""The table of chunks: one row per chunk, none per reference."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, BigInt, Id, Micros


class ChunkState(StrEnum):
    """`stored` is live; `condemned` waits for deletion; `quarantined` was found damaged; `lost` has no object.

    `pending`: a client was told to upload it to the object store itself, and nothing of it is verified yet. It is
    present for nobody, and only manifests of its origin checkpoint may name it; validation makes it `stored`.
    """

    PENDING = "pending"
    STORED = "stored"
    CONDEMNED = "condemned"
    QUARANTINED = "quarantined"
    LOST = "lost"


class Verification(StrEnum):
    """How the stored bytes were checked: by the store's checksum only, or by their digest."""

    DECLARED = "declared"
    VERIFIED = "verified"


_DECLARED = text("verification = 'declared'")


class Chunk(Base):
    """A stored chunk. A digest is unique within its project; a re-upload heals the row under a new object key."""

    __tablename__ = "chunks"
    __table_args__ = (
        Index("uq_chunks_project_id_digest", "project_id", "digest", unique=True),
        Index("ix_chunks_state_claimed_at", "state", "claimed_at"),
        Index("ix_chunks_suspected_at", "suspected_at"),
        Index("ix_chunks_verification_verified_at", "verification", "verified_at"),
        # Covers the overview's sum of what nobody has compared yet: after direct uploads, most chunks for a month.
        Index(
            "ix_chunks_declared",
            "verification",
            "state",
            "project_id",
            "size_bytes",
            sqlite_where=_DECLARED,
            postgresql_where=_DECLARED,
        ),
        # Manifests store chunk ids: the id of a collected chunk must never be given to another.
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"))
    digest: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int] = mapped_column(BigInt)
    crc64: Mapped[str] = mapped_column(String(16))
    """16 hexadecimal digits: unsigned 64 bits fit no portable integer column."""
    object_key: Mapped[str] = mapped_column(String(300))
    state: Mapped[str] = mapped_column(String(16))
    verification: Mapped[str] = mapped_column(String(16))
    origin_run_id: Mapped[Id]
    """The run that stored it; before verification only that run may reuse it."""
    origin_checkpoint_id: Mapped[Id]
    """The checkpoint that stored it, or is uploading it: the one whose prefix its object key has."""
    claimed_at: Mapped[Micros]
    """Last time a negotiate or upload claimed it; collection condemns only what is unclaimed for long."""
    stored_at: Mapped[Micros]
    verified_at: Mapped[Micros | None]
    uploads: Mapped[int] = mapped_column(default=1)
    """Counts uploads of this digest: the `.n` of the next object key."""
    condemned_at: Mapped[Micros | None]
    """When collection found that nobody needs it; its object goes a grace later, unless it is uploaded again."""
    suspected_at: Mapped[Micros | None]
    """When a reader reported damage that nobody has looked at yet."""


class ChunkProof(Base):
    """That a job bound to one run sent the bytes of a chunk which another run had stored, see `reach.py`."""

    __tablename__ = "chunk_proofs"

    checkpoint_id: Mapped[Id] = mapped_column(primary_key=True)
    chunk_id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=False)
