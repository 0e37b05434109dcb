"""The overview: what is stored, how it grows, how saves went, and what the worker does."""

from __future__ import annotations

from datetime import datetime

from shardkeep.protocol.messages.bodies import Answer


class SavesInTime(Answer):
    """The checkpoints of one stretch of time, which begins at `start`."""

    start: datetime
    committed: int
    """By when they were committed."""
    aborted: int
    """By when they were opened: an abort has no time of its own."""
    new_bytes: int
    """Stored bytes that the committed brought."""
    raw_bytes: int
    """What they hold, before deduplication and compression."""


class CollectionInfo(Answer):
    """How far collection is."""

    passes: int
    started_at: datetime | None
    ended_at: datetime | None
    running: bool
    stopped_because: str | None
    removed_objects: int
    """By the pass that runs, or ran last."""
    freed_bytes: int


class WorkerInfo(Answer):
    """One background task: who runs it, until when its lease holds."""

    task: str
    holder: str | None
    lease_until: datetime | None


class OverviewInfo(Answer):
    """GET /v1/overview: of everything the token may see. `collection` and `workers` only for tokens of all projects."""

    projects: int
    runs: int
    committed_checkpoints: int
    open_checkpoints: int
    """Open or being validated."""
    aborted_checkpoints: int
    deleted_checkpoints: int
    raw_bytes: int
    """Logical: what the committed checkpoints hold, each counted whole."""
    named_bytes: int
    """What the same checkpoints name in the store, each counted whole: after compression, before deduplication."""
    stored_bytes: int
    """What the chunks take in the store, each once."""
    stretch_seconds: int
    saves: list[SavesInTime]
    """One for each stretch of the window asked for, oldest first, empty ones too; at most 400."""
    declared_bytes: int
    quarantined_checkpoints: int
    open_findings: int
    collection: CollectionInfo | None
    workers: list[WorkerInfo]
    outbox_entries: int | None
    """Records that are still to be written to the store; None for tokens bound to projects."""
    now: datetime
