"""Tokens, quotas and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from shardkeep.protocol.identifiers import Name, TokenId
from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.scalars import Size

TOKEN_PROJECTS_LIMIT: Final = 100
_LONGEST_SECONDS: Final = 10 * 366 * 86_400

TokenScope = Literal["metrics", "read", "write", "delete", "admin"]
TokenName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Lifetime = Annotated[int, Field(ge=1, le=_LONGEST_SECONDS)]
"""Seconds."""


class TokenInfo(Answer):
    """What a token may do. Its text is shown once, when it is made, and never again."""

    id: TokenId
    name: str
    prefix: str
    """The first characters, to recognise it by."""
    scope: str
    project: str | None
    """The first of its projects; None sees all."""
    projects: list[str] | None = None
    """All of its projects; None sees all."""
    run: str | None = None
    """The only run it may touch, a job's token."""
    parent_id: TokenId | None = None
    """The token that minted it for a job, with which it is revoked."""
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class CreateToken(Request):
    """POST /v1/tokens (admin).

    With an `id` of one's own the request may be repeated: while the token was never used, the answer is the same token
    with a fresh text. `projects` and `expires_in_seconds` default to those of the token that asks, and never go beyond.
    """

    id: TokenId | None = None
    name: TokenName
    scope: TokenScope
    projects: Annotated[list[Name], Field(min_length=1, max_length=TOKEN_PROJECTS_LIMIT)] | None = None
    expires_in_seconds: Lifetime | None = None


class CreateJobToken(Request):
    """POST /v1/tokens/job (write): a short-lived token for the jobs of one run; it cannot delete. Repeated as above."""

    id: TokenId | None = None
    name: TokenName = "job"
    project: Name
    run: Name
    scope: Literal["read", "write"] = "write"
    expires_in_seconds: Lifetime = 86_400


class NewToken(Answer):
    """A token just made: the only answer that ever holds its text."""

    token: str
    info: TokenInfo


class SetQuota(Request):
    """PUT /v1/projects/{project}/quota (admin of all projects): what it may use at most. None is no limit."""

    max_bytes: Size | None = None
    max_checkpoints: Size | None = None


class QuotaInfo(Answer):
    """What a project may use, and what it uses.

    `used_bytes` counts every chunk until collection removed it; `used_checkpoints` counts those that are open, being
    validated or committed.
    """

    project: str
    max_bytes: int | None
    max_checkpoints: int | None
    used_bytes: int
    used_checkpoints: int
    version: int = 0
    """Of the limits: to be sent as If-Match with a change, see `RetentionAnswer.version`."""


class AuditEntryInfo(Answer):
    """One change: who did what to what, when."""

    id: int
    at: datetime
    actor: str
    """A token's id, or `worker` or `operator`: what the service does by itself, or its command line."""
    actor_name: str
    action: str
    """`noun.verb`."""
    target: str
    project: str | None
    request_id: str | None
    detail: dict[str, Any] | None
