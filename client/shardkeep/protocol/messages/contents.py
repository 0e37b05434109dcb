"""What is in a checkpoint: slices, values, the difference to another one, and what deleting it would mean."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shardkeep.protocol.identifiers import CheckpointId, Digest
from shardkeep.protocol.messages.bodies import Answer
from shardkeep.protocol.messages.checkpoints import CheckpointSummary


class SliceInfo(Answer):
    """One rank's slice of one tensor."""

    rank: int
    offsets: list[int]
    sizes: list[int]
    raw_bytes: int
    stored_bytes: int
    segments: int
    codecs: list[str]
    chunks: list[Digest]


class ValueInfo(Answer):
    """One value: `rank` is None for a global one. `text` is JSON of what it says, cut after 2,000 characters."""

    name: str
    rank: int | None
    kind: str
    """`random` (RNG state), `position` (of data) or `value`."""
    text: str
    cut: bool
    size_bytes: int


class TensorDifference(Answer):
    """One tensor that the two checkpoints do not have alike."""

    name: str
    change: Literal["added", "removed", "changed", "reshaped"]
    """`added` is in this one only, `removed` in the other only; `reshaped`: another dtype or shape."""
    dtype: str
    shape: list[int]
    other_dtype: str | None = None
    other_shape: list[int] | None = None
    raw_bytes: int
    changed_bytes: int
    """Raw bytes of the segments that differ, of `raw_bytes`."""


class DifferenceAnswer(Answer):
    """GET /v1/checkpoints/{checkpoint}/differences/{other}: totals of all, and one page of the tensors."""

    checkpoint: CheckpointSummary
    other: CheckpointSummary
    added: int
    removed: int
    changed: int
    reshaped: int
    same: int
    same_bytes: int
    changed_bytes: int
    items: list[TensorDifference]
    next_cursor: str | None = None


class DeletionImpact(Answer):
    """GET /v1/checkpoints/{checkpoint}/impact: what deleting it would mean."""

    checkpoint_id: CheckpointId
    freed_bytes: int
    """Stored bytes that only this checkpoint names: they go once it is purged."""
    restorable_seconds: float
    """How long it can be restored after it was deleted."""
    is_latest: bool
    latest_after: CheckpointSummary | None
    """What `latest` would answer without it."""
    resumed_by: list[str] = Field(default_factory=list)
    """Attempts of the run that resumed from it, newest first; at most 20."""
    children: int
    """Checkpoints that name it as their parent: they stay whole."""
    refused_because: str | None
    """Why deleting is refused now: it is pinned, say."""
