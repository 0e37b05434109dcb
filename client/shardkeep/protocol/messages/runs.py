"""Projects and runs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from shardkeep.protocol.identifiers import (
    AttemptId,
    CheckpointId,
    Name,
    ProjectId,
    RunId,
)
from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.checkpoints import CheckpointSummary

RunState: TypeAlias = Literal["new", "saving", "idle", "deleted"]
"""`new` has no committed checkpoint, `saving` has an open one, `idle` has committed ones and none open."""


class CreateProject(Request):
    """POST /v1/projects (admin)."""

    name: Name


class ProjectInfo(Answer):
    """One project."""

    id: ProjectId
    name: str
    created_at: datetime
    runs: int
    committed_checkpoints: int
    stored_bytes: int
    deleted_at: datetime | None = None
    version: int = 1
    """Counts deletions and restorations; the ETag that both must carry."""


class RunInfo(Answer):
    """One run. `created` is true only in the answer to the request that made it."""

    id: RunId
    project: str
    name: str
    created_at: datetime
    created: bool = False
    state: RunState | None = None
    """None where a service of a version before answers."""
    current_attempt_id: AttemptId | None
    attempts: int
    checkpoints: int
    committed_checkpoints: int
    latest: CheckpointSummary | None
    deleted_at: datetime | None = None
    version: int = 1
    """Counts deletions and restorations; the ETag that both must carry."""


class Restore(Request):
    """POST to restore a deleted run or project: under another name, where one is given."""

    name: Name | None = None


class RunSummary(Answer):
    """A run in the list of all runs."""

    id: RunId
    project: str
    name: str
    created_at: datetime
    state: RunState
    attempts: int
    committed_checkpoints: int
    stored_bytes: int
    """What its committed checkpoints brought to the store."""
    last_step: int | None
    """Of the last committed checkpoint."""
    last_committed_at: datetime | None
    last_checkpoint_id: CheckpointId | None
    deleted_at: datetime | None = None
    version: int
