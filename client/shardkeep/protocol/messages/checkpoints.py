"""Checkpoints as they are kept: their life, what validation found, summaries and details."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from shardkeep.protocol.identifiers import (
    AttemptId,
    CheckpointId,
)
from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.scalars import Metric


class CheckpointState(StrEnum):
    """The life of a checkpoint; `aborted` and `purged` are final.

    `unconfirmed`: a rebuild of the catalogue found it whole, without the record of its commit. It is never the latest
    and cannot be read until somebody accepts it.
    """

    OPEN = "open"
    VALIDATING = "validating"
    COMMITTED = "committed"
    ABORTED = "aborted"
    DELETED = "deleted"
    PURGED = "purged"
    UNCONFIRMED = "unconfirmed"


class AbortInfo(Answer):
    """Why a checkpoint was aborted, and by or because of which rank."""

    code: str
    reason: str
    rank: int | None = None
    ranks: list[int] = Field(default_factory=list)
    tensors: list[str] = Field(default_factory=list)


class CheckpointReport(Answer):
    """What validation found worth telling; none of it stops a commit."""

    divergent_buffers: list[str] = Field(default_factory=list)
    per_rank_values: list[str] = Field(default_factory=list)
    """Values that were to be global and differ by rank, and those flagged per rank that rank 0 does not have."""
    values_of_some_ranks: dict[str, int] = Field(default_factory=dict)
    """Global values that only some ranks hold, equal on all these: the lowest rank that has each."""
    tensors_gone: list[str] = Field(default_factory=list)
    """In the parent and named by nobody now."""
    warnings: list[str] = Field(default_factory=list)


class CheckpointSummary(Answer):
    """A checkpoint in a list."""

    id: CheckpointId
    project: str
    run: str
    attempt_id: AttemptId
    attempt_number: int
    save: int
    step: int
    world_size: int
    state: CheckpointState
    sequence: int | None
    """Commit sequence within the run; the order of `latest`."""
    on_line: bool
    """Whether it is on the line of the run's current attempt."""
    pinned: bool
    tags: list[str] = Field(default_factory=list)
    quarantined: bool
    opened_at: datetime
    committed_at: datetime | None
    raw_bytes: int | None
    stored_bytes: int | None
    new_bytes: int | None
    """Bytes this checkpoint brought; the rest were present."""
    metrics: dict[str, Metric]
    version: int
    """Counts changes; the ETag that delete, restore and pin must carry."""


class CheckpointInfo(CheckpointSummary):
    """One checkpoint, whole."""

    parent_id: CheckpointId | None
    arrived: int
    missing_ranks: list[int]
    abort: AbortInfo | None
    report: CheckpointReport | None
    environment: dict[str, Any]
    tensors: int | None
    pin_reason: str | None
    deleted_at: datetime | None
    deletion_reason: str | None = None
    """Why retention deleted it; None where somebody did."""


class PinCheckpoint(Request):
    """PUT /v1/checkpoints/{checkpoint}/pin."""

    reason: Annotated[str, StringConstraints(max_length=1000)] = ""


class TensorInfo(Answer):
    """One tensor of a committed checkpoint."""

    name: str
    dtype: str
    shape: list[int]
    kind: str
    raw_bytes: int
    slices: int
