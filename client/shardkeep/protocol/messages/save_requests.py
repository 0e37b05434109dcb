"""Save requests: "checkpoint now", asked for from outside the training job."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from shardkeep.protocol.identifiers import AttemptId, CheckpointId
from shardkeep.protocol.messages.bodies import Answer

SaveRequestState: TypeAlias = Literal["none", "waiting", "saving", "done"]
"""`none` was ever made; it waits to be taken up; the checkpoint that took it up is open (`saving`), or committed."""


class SaveRequestInfo(Answer):
    """What POST and GET /v1/projects/{project}/runs/{run}/save-request answer, and the poll of an attempt.

    Requests coalesce: while one waits to be taken up, another one is the same. Training takes it up at its next step;
    the first checkpoint of the attempt that is opened after it was made fulfils it.
    """

    attempt_id: AttemptId | None
    """None where nothing has begun to train the run."""
    number: int
    """Counts the requests of the attempt; 0 before the first."""
    state: SaveRequestState
    requested_at: datetime | None
    requested_by: str | None
    """The name of the token that asked."""
    checkpoint_id: CheckpointId | None
    """The checkpoint that took it up. Of a request that waits: the one that did and was aborted."""
