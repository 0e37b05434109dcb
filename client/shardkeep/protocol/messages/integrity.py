"""Integrity: how far the scrub is, and what was found damaged."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from shardkeep.protocol.identifiers import CheckpointId, ProjectId
from shardkeep.protocol.messages.bodies import Answer


class IntegrityInfo(Answer):
    """GET /v1/integrity: of everything the token may see, or of one project."""

    stored_bytes: int
    verified_bytes: int
    """Compared with their digest within the scrub's interval."""
    declared_bytes: int
    """Never compared: the object store vouched for size and checksum."""
    coverage: float
    """Verified of stored, 0 to 1."""
    oldest_verified_at: datetime | None
    open_findings: int


class FindingInfo(Answer):
    """One stored object that was found damaged or lost. `resolved_at` is None until it is whole or needed no more."""

    id: int
    project_id: ProjectId
    checkpoint_id: CheckpointId
    """The checkpoint whose object it is; of a chunk, the one that brought it."""
    kind: Literal["chunk", "manifest", "index", "commit_record"]
    damage: Literal["damaged", "lost"]
    object_key: str
    digest: str | None
    detail: str
    harmed: list[CheckpointId]
    """The checkpoints that needed it when it was found; of more than a thousand the first."""
    found_at: datetime
    resolved_at: datetime | None
    resolution: str | None
