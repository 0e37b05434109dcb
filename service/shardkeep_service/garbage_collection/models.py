"""The tables of collection: how far it is, and which objects it saw that no row names."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, BigInt, Id, Micros


class CollectionProgress(Base):
    """One row: the pass that runs or ran last, where it goes on, and why collection is stopped, if it is."""

    __tablename__ = "collection_progress"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    passes: Mapped[int]
    """Passes begun."""
    started_at: Mapped[Micros | None]
    ended_at: Mapped[Micros | None]
    """When a pass last went through to its end."""
    place: Mapped[dict[str, Any]] = mapped_column(JSON)
    """Where the pass that has not ended goes on; empty at its start."""
    tally: Mapped[dict[str, Any]] = mapped_column(JSON)
    """What that pass removed so far."""
    stopped_at: Mapped[Micros | None]
    stopped_because: Mapped[str | None] = mapped_column(String(2000))
    """Why nothing is collected until an operator acts; None while all is well."""


class StraySighting(Base):
    """An object that no row names, since when. It goes when a later pass, a grace after, still finds it so."""

    __tablename__ = "stray_sightings"
    __table_args__ = (Index("ix_stray_sightings_project_id_object_key", "project_id", "object_key"),)

    object_key: Mapped[str] = mapped_column(String(300), primary_key=True)
    project_id: Mapped[Id]
    first_seen_at: Mapped[Micros]
    last_pass: Mapped[int]
    """The pass that saw it last: sightings of older ones are forgotten, their objects are gone or named."""
    size_bytes: Mapped[int] = mapped_column(BigInt)
