"""Retention: the rules by which checkpoints are kept, and what they come to."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from shardkeep.protocol.identifiers import CheckpointId, Name
from shardkeep.protocol.messages.bodies import Answer, Request
from shardkeep.protocol.messages.scalars import MetricName

OFF_LINE_SECONDS = 604_800
"""How long checkpoints off the line are kept unless a policy says otherwise: a week."""
_SECONDS_LIMIT = 10**10

Count = Annotated[int, Field(ge=1, le=10**9)]
Seconds = Annotated[int, Field(ge=1, le=_SECONDS_LIMIT)]


class BestRule(Request):
    """Keeps the checkpoints with the best values of a metric. NaN, infinities and absent values are never best."""

    metric: MetricName
    mode: Literal["min", "max"]
    count: Count = 1


class RetentionRules(Request):
    """What is kept: whatever any of the rules keeps. The first three count the committed along the run's line."""

    keep_last: Count | None = None
    """The newest so many."""
    every_steps: Count | None = None
    """The first at or after each multiple of so many steps."""
    best: Annotated[list[BestRule], Field(max_length=20)] = Field(default_factory=list)
    tags: Annotated[list[Name], Field(max_length=100)] = Field(default_factory=list)
    """Every checkpoint with one of these tags, on the line or off it."""
    younger_than_seconds: Seconds | None = None
    """Every checkpoint committed less than so long ago, on the line or off it."""
    off_line_seconds: Annotated[int, Field(ge=0, le=_SECONDS_LIMIT)] = OFF_LINE_SECONDS
    """How long a checkpoint is kept after a rollback left it off the line. Keeps nothing on the line."""

    @property
    def is_empty(self) -> bool:
        """Whether no rule keeps anything on the line: no policy, which no service takes."""
        counted = self.keep_last or self.every_steps or self.younger_than_seconds
        return not (counted or self.best or self.tags)


class RetentionPolicyInfo(Answer):
    """One policy, and where it was set."""

    project: str
    run: str | None
    """None for the policy of the project."""
    rules: RetentionRules
    set_at: datetime
    set_by: str


class RetentionAnswer(Answer):
    """The policy set here, and the one in force: of a run its own, else its project's. Without one all is kept."""

    policy: RetentionPolicyInfo | None
    in_force: RetentionPolicyInfo | None
    paused: str | None = None
    """Why no policy deletes anything for now; an operator resumes it."""
    version: int = 0
    """Of the policy set here, 0 without one: to be sent as If-Match, so that no change undoes one that was not seen."""


class RetentionReason(Answer):
    """Why a checkpoint is kept or deleted: a stable code, and words."""

    code: str
    text: str


class RetentionVerdict(Answer):
    """What a policy comes to for one checkpoint, with every reason."""

    checkpoint_id: CheckpointId
    run: str
    step: int
    sequence: int
    committed_at: datetime
    on_line: bool
    kept: bool
    reasons: list[RetentionReason]


class RetentionPlanAnswer(Answer):
    """What applying policies would do now, or, after applying, what was done."""

    applied: bool
    kept: int
    deleted: int
    freed_bytes: int | None
    """Stored bytes that only the deleted name: they go once those are purged. None where nobody asked."""
    verdicts: list[RetentionVerdict]
    """Those to be deleted first, then by run and commit."""
    not_listed: int
    """Further verdicts."""
    paused: str | None = None
    """Why nothing is deleted for now."""
