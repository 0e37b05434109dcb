"""A save: opening, states, beats and giving up."""

from __future__ import annotations

from pydantic import Field

from shardkeep.protocol.identifiers import (
    CheckpointId,
    Digest,
)
from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.checkpoints import AbortInfo, CheckpointInfo, CheckpointState
from shardkeep.protocol.messages.scalars import Rank, Reason, Step, WorldSize


class OpenCheckpoint(Request):
    """POST /v1/attempts/{attempt}/checkpoints: (attempt, save) is the checkpoint; the first creates, the rest join."""

    save: Step
    step: Step
    rank: Rank
    world_size: WorldSize


class OpenAnswer(Answer):
    """The checkpoint this rank now takes part in. `parent_id` is what unchanged segments may be reused from.

    `arrived` is true when this rank's manifest is already in (a repeated open after a crash or a lost answer).
    """

    checkpoint_id: CheckpointId
    state: CheckpointState
    parent_id: CheckpointId | None
    lease_seconds: float
    arrived: bool


class AbortCheckpoint(Request):
    """POST /v1/checkpoints/{checkpoint}/abort. Idempotent; a committed checkpoint is a conflict.

    `rank` is the rank that gives up; None where somebody else ends the save.
    """

    rank: Rank | None = None
    reason: Reason


class StateAnswer(Answer):
    """Answer to open polls and beats: GET .../state and POST .../sessions/{rank}/beat.

    `missing_chunks` names digests this rank's manifest needs and the service lost or found damaged: upload them
    again and repeat the manifest. `checkpoint` is the whole of a committed one, so that its ranks need not ask again.
    """

    checkpoint_id: CheckpointId
    state: CheckpointState
    arrived: int
    world_size: int
    waiting_for: list[int] = Field(default_factory=list)
    abort: AbortInfo | None = None
    missing_chunks: list[Digest] = Field(default_factory=list)
    checkpoint: CheckpointInfo | None = None
