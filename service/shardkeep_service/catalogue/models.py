"""The table of what a catalogue knows of itself: its id, and what is paused."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, Micros


class CatalogueFact(Base):
    """One fact by its name; see `state.py` for the names there are."""

    __tablename__ = "catalogue_facts"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    value: Mapped[dict[str, Any]] = mapped_column(JSON)
    set_at: Mapped[Micros]
