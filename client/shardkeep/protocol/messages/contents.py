"""What is in a checkpoint: slices, values, the difference to another one, and what deleting it would mean."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from shardkeep.protocol.identifiers import CheckpointId, Digest
from shardkeep.protocol.messages.bodies import Answer
from shardkeep.protocol.messages.checkpoints import CheckpointSummary


class SliceInfo(Answer):
    """One stored slice of a tensor. Replicas are not kept: of equal slices it is the lowest rank's."""

    rank: int
    """The rank that stored it."""
    offsets: list[int]
    sizes: list[int]
    raw_bytes: int
    stored_bytes: int
    segments: int
    codecs: list[str]
    chunks: list[Digest]
    """Where its bytes are; the first 32."""
    chunk_count: int
    """How many there are."""


ValueKind: TypeAlias = Literal["random", "position", "value"]
"""`random` is the state of a random number generator, `position` one of the data, `value` anything else."""


class ValueInfo(Answer):
    """One value: `rank` is None for a global one.

    `text` is strict JSON of what it says, cut after 2,000 characters. What JSON lacks is an object with `$type`; nan,
    infinities and integers that a double cannot hold are texts; bytes and arrays are only described.
    """

    name: str
    rank: int | None
    kind: ValueKind
    text: str
    cut: bool
    size_bytes: int
    """Of its encoding, without the leaves above 64 KiB, which are tensors (`@value...`)."""


TensorChange: TypeAlias = Literal["added", "removed", "changed", "reshaped", "recut"]
"""`added` is in this one only, `removed` in the other only; `reshaped`: another dtype or shape; `recut`: of the same
dtype and shape, but cut into other slices, so that fingerprints cannot tell whether it changed.
"""


class TensorDifference(Answer):
    """One tensor that the two checkpoints do not have alike."""

    name: str
    change: TensorChange
    dtype: str
    shape: list[int]
    """Of a removed one what the other has, as its sizes."""
    other_dtype: str | None = None
    other_shape: list[int] | None = None
    """Of a reshaped one."""
    raw_bytes: int
    changed_bytes: int
    """Raw bytes of the segments that differ, or may, of `raw_bytes`."""


class DifferenceAnswer(Answer):
    """GET /v1/checkpoints/{checkpoint}/differences/{other}: totals of all, and one page of the tensors."""

    checkpoint: CheckpointSummary
    other: CheckpointSummary
    added: int
    removed: int
    changed: int
    reshaped: int
    recut: int
    same: int
    same_bytes: int
    changed_bytes: int
    """With `same_bytes` it is all that this checkpoint holds; removed tensors do not count."""
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
