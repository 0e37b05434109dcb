"""The table of projects."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, Id, Micros


class Project(Base):
    """One namespace."""

    __tablename__ = "projects"

    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(128), unique=True)
    created_at: Mapped[Micros]
