"""Attempts, and what they resume from."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from shardkeep.protocol.identifiers import (
    AttemptId,
    CheckpointId,
    LaunchId,
    Name,
    RunId,
)
from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.checkpoints import CheckpointInfo, CheckpointState
from shardkeep.protocol.messages.scalars import Label, WorldSize


class BeginAttempt(Request):
    """POST /v1/projects/{project}/runs/{run}/attempts. The same launch_id and ordinal give the same attempt."""

    launch_id: LaunchId
    ordinal: Annotated[int, Field(ge=0, lt=1 << 31)]
    world_size: WorldSize
    labels: dict[Name, Label] = Field(default_factory=dict, max_length=64)


class AttemptInfo(Answer):
    """One attempt. `decision` is None until a rank asked to resume, then `fresh` or a checkpoint id."""

    id: AttemptId
    run_id: RunId
    project: str
    run: str
    number: int
    launch_id: LaunchId
    ordinal: int
    world_size: int
    labels: dict[str, str]
    created_at: datetime
    current: bool
    decision: str | None
    resumed_step: int | None = None
    """The step of the checkpoint it resumed from; None where it did not."""
    resumed_attempt: int | None = None
    """The number of the attempt that saved that checkpoint."""


class DecideResume(Request):
    """POST /v1/attempts/{attempt}/resume: at most one of the two; neither means the last consistent checkpoint.

    The first rank's answer is recorded; later ranks get it whatever they ask, unless they ask for something else by
    name, which is `resume_decided_otherwise`.
    """

    checkpoint_id: CheckpointId | None = None
    fresh: bool = False


class PassedOver(Answer):
    """A checkpoint that is newer and was not chosen, or that cannot be used, and why."""

    checkpoint_id: CheckpointId
    step: int
    attempt_id: AttemptId
    state: CheckpointState
    code: str
    reason: str
    missing_ranks: list[int] = Field(default_factory=list)


class ResumeDecision(Answer):
    """What every rank of the attempt resumes from: `checkpoint`, or nothing and then `fresh` is true."""

    attempt_id: AttemptId
    fresh: bool
    checkpoint: CheckpointInfo | None
    passed_over: list[PassedOver]


class LatestAnswer(Answer):
    """The last consistent checkpoint on the current line, or None, with what was passed over for it."""

    checkpoint: CheckpointInfo | None
    passed_over: list[PassedOver]
