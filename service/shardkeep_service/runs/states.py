"""The state of a run as people see it: told by its checkpoints, and stored nowhere."""

from __future__ import annotations

from shardkeep.protocol.messages import RunState
from shardkeep_service.runs.models import Run


def state_of(run: Run, *, is_saving: bool, has_committed: bool) -> RunState:
    """One that is saved to is `saving`, also the first time."""
    if run.deleted_at is not None:
        return "deleted"
    if is_saving:
        return "saving"
    return "idle" if has_committed else "new"
