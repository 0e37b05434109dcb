"""Checkpoint summaries for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shardkeep.protocol.messages import CheckpointState, CheckpointSummary


def checkpoint_id(number: int) -> str:
    return f"ckp_{number:032x}"


def summary(number: int = 1, **changes: Any) -> CheckpointSummary:
    fields: dict[str, Any] = {
        "id": checkpoint_id(number),
        "project": "p",
        "run": "r",
        "attempt_id": f"att_{number:032x}",
        "attempt_number": 1,
        "save": 0,
        "step": 5,
        "world_size": 1,
        "state": CheckpointState.COMMITTED,
        "sequence": number,
        "on_line": True,
        "pinned": False,
        "quarantined": False,
        "opened_at": datetime(2030, 1, 1, tzinfo=UTC),
        "committed_at": datetime(2030, 1, 1, tzinfo=UTC),
        "raw_bytes": 10,
        "stored_bytes": 8,
        "new_bytes": 8,
        "metrics": {},
        "version": 1,
    }
    return CheckpointSummary(**{**fields, **changes})
