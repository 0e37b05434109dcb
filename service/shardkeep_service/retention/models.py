"""The table of retention policies."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, Id, Micros


class RetentionPolicy(Base):
    """The policy of a project, or of one run, where it stands instead of the project's."""

    __tablename__ = "retention_policies"

    subject_id: Mapped[Id] = mapped_column(primary_key=True)
    """The id of the project or run."""
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), index=True)
    run_id: Mapped[Id | None] = mapped_column(ForeignKey("runs.id"))
    rules: Mapped[dict[str, Any]] = mapped_column(JSON)
    set_at: Mapped[Micros]
    """Database time, and its version: each policy of a subject is later than the one before."""
    set_by: Mapped[str] = mapped_column(String(200))
    """The name of the token that set it."""
