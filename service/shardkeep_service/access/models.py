"""The tables of access: tokens, what they are bound to, quotas, what projects use, and the audit log."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from shardkeep_service.database.base import Base, BigInt, Id, Micros


class Token(Base):
    """A bearer token, known by its SHA-256 only."""

    __tablename__ = "tokens"
    __table_args__ = (
        Index("ix_tokens_created_at_id", "created_at", "id"),
        Index("ix_tokens_project_id_created_at_id", "project_id", "created_at", "id"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    prefix: Mapped[str] = mapped_column(String(16))
    """The first characters, to recognise it in lists and logs."""
    scope: Mapped[str] = mapped_column(String(16))
    project_id: Mapped[Id | None] = mapped_column(ForeignKey("projects.id"))
    """None sees every project. Else the first of its projects; all of them are in `token_projects`."""
    run_id: Mapped[Id | None]
    """The only run a job's token may touch; None does not bind it to one."""
    parent_id: Mapped[Id | None] = mapped_column(ForeignKey("tokens.id"), index=True)
    """The token that minted this one for a job: revoking it revokes this one too."""
    created_at: Mapped[Micros]
    expires_at: Mapped[Micros | None]
    last_used_at: Mapped[Micros | None]
    revoked_at: Mapped[Micros | None]


class SignInRow(Base):
    """One browser's sign-in: its cookie holds a secret, known by its SHA-256 only, and stands for the token."""

    __tablename__ = "sign_ins"

    id: Mapped[Id] = mapped_column(primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    token_id: Mapped[Id] = mapped_column(ForeignKey("tokens.id"), index=True)
    created_at: Mapped[Micros]
    expires_at: Mapped[Micros] = mapped_column(index=True)
    last_used_at: Mapped[Micros | None]


class TokenProject(Base):
    """One project a bound token may see."""

    __tablename__ = "token_projects"

    token_id: Mapped[Id] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), primary_key=True, index=True)


class ProjectQuota(Base):
    """What a project may use at most. No row, or None, is no limit."""

    __tablename__ = "project_quotas"

    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    max_bytes: Mapped[int | None] = mapped_column(BigInt)
    max_checkpoints: Mapped[int | None] = mapped_column(BigInt)
    set_at: Mapped[Micros]
    """Database time, and its version: each quota of a project is later than the one before."""


class ProjectUsage(Base):
    """A part of the bytes a project's chunks take: the sum over the slots is the whole, see `usage.py`."""

    __tablename__ = "project_usage"

    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    slot: Mapped[int] = mapped_column(primary_key=True)
    stored_bytes: Mapped[int] = mapped_column(BigInt)


class AuditEntry(Base):
    """One change: who did what to what, when. Rows are only ever added; they outlive what they speak of."""

    __tablename__ = "audit_log"
    __table_args__ = (
        Index("ix_audit_log_project_id_id", "project_id", "id"),
        Index("ix_audit_log_actor_id", "actor", "id"),
        Index("ix_audit_log_action_id", "action", "id"),
        Index("ix_audit_log_target_id", "target", "id"),
        Index("ix_audit_log_at", "at"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BigInt, primary_key=True, autoincrement=True)
    at: Mapped[Micros]
    actor: Mapped[str] = mapped_column(String(64))
    """A token's id, or the name of a part of the service."""
    actor_name: Mapped[str] = mapped_column(String(200))
    action: Mapped[str] = mapped_column(String(64))
    target: Mapped[str] = mapped_column(String(400))
    project_id: Mapped[Id | None]
    request_id: Mapped[str | None] = mapped_column(String(64))
    detail: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
