"""The table of the workers' leases."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, Micros


class Lease(Base):
    """Who runs a background task now, until when, and before when nobody is to run it again."""

    __tablename__ = "worker_leases"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str | None] = mapped_column(String(120))
    until: Mapped[Micros]
    """The lease lapses then, by database time, unless its owner renews it."""
    due_at: Mapped[Micros]
    """The last turn ended so that the next one is due then."""
