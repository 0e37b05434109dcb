"""The ranks of a checkpoint: how far each one's part is, and how long it took."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from shardkeep.protocol.identifiers import AttemptId, CheckpointId
from shardkeep.protocol.messages.bodies import Answer
from shardkeep.protocol.messages.checkpoints import CheckpointState, CheckpointSummary

RankState: TypeAlias = Literal["absent", "sending", "arrived"]
"""`absent` never opened, or the checkpoint ended without its manifest; `sending` has opened; `arrived`: its manifest
is in.
"""


class RankPart(Answer):
    """GET /v1/checkpoints/{checkpoint}/ranks: one rank's part. Every rank of the world has one, also an absent one.

    When it opened and what it offered is forgotten once the checkpoint has ended: then these are None.
    """

    rank: int
    state: RankState
    opened_at: datetime | None
    arrived_at: datetime | None
    seconds: float | None
    """From the opening of the checkpoint to the arrival of this rank's manifest."""
    offered_bytes: int | None
    """Stored bytes it has offered so far: present ones and those it sends. None where it was not counted."""
    present_bytes: int | None
    """Of these, what was stored already."""
    idle_seconds: float | None
    """Since its last request; None once the checkpoint has ended."""
    lease_until: datetime | None
    manifest_bytes: int | None
    missing_chunks: int


class SaveInProgress(Answer):
    """GET /v1/saves: a checkpoint that is open or being validated, with what its ranks did so far."""

    checkpoint: CheckpointSummary
    opened_ranks: int
    arrived_ranks: int
    offered_bytes: int
    present_bytes: int
    raw_bytes_before: int | None
    """What the parent holds: about what this one will."""
    named_bytes_before: int | None
    """What the parent names in the store: about what the ranks will offer."""
    idle_seconds: float
    """Of the rank that has been silent for longest and has not arrived; 0 without one."""
    now: datetime


class SaveTimes(Answer):
    """One column of the heat map: how long each rank took."""

    checkpoint_id: CheckpointId
    attempt_id: AttemptId
    number: int
    save: int
    step: int
    state: CheckpointState
    world_size: int
    opened_at: datetime
    ended_at: datetime | None
    """When it was committed."""
    seconds: list[float | None]
    """By rank, from the opening of the checkpoint to the arrival of its manifest; None for one that is missing."""
