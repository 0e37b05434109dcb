"""What a service says of itself."""

from __future__ import annotations

from typing import Literal

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
