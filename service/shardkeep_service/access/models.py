"""The table of tokens."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, Id, Micros


class Token(Base):
    """A bearer token, known by its SHA-256 only."""

    __tablename__ = "tokens"

    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    prefix: Mapped[str] = mapped_column(String(16))
    """The first characters, to recognise it in lists and logs."""
    scope: Mapped[str] = mapped_column(String(16))
    project_id: Mapped[Id | None] = mapped_column(ForeignKey("projects.id"))
    created_at: Mapped[Micros]
    expires_at: Mapped[Micros | None]
    last_used_at: Mapped[Micros | None]
    revoked_at: Mapped[Micros | None]
