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
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    """Counts deletions and restorations, and is the ETag of both."""
    deleted_at: Mapped[Micros | None]
    deleted_name: Mapped[str | None] = mapped_column(String(128))
    """Its name when it was deleted. `name` is then one that nobody can give, so that the name is free."""

    @property
    def shown_name(self) -> str:
        """Its name, also after it was deleted."""
        return self.deleted_name or self.name
