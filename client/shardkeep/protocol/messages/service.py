"""What a service says of itself and of a token."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from shardkeep.protocol.identifiers import (
    TokenId,
)
from shardkeep.protocol.messages.bodies import Answer


class Capabilities(Answer):
    """What a service speaks and allows."""

    service_version: str
    protocol_versions: list[int]
    manifest_versions: list[int]
    codecs: list[str]
    max_chunk_bytes: int
    max_manifest_bytes: int
    negotiate_limit: int
    list_limit: int
    lease_seconds: float
    beat_seconds: float
    wait_seconds_limit: float
    uploads: list[Literal["streamed", "direct"]]


class TokenInfo(Answer):
    """GET /v1/tokens/self: what a token may do. Its text is shown once, when it is made, and never again."""

    id: TokenId
    name: str
    prefix: str
    """The first characters, to recognise it by."""
    scope: str
    """`read`, `write` or `admin`."""
    project: str | None
    """The only project it sees; None sees all."""
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
