"""Which save an upload is a part of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SaveIdentity:
    """Which save of which attempt, at which step, by which rank of how many."""

    attempt_id: str
    save: int
    step: int
    rank: int
    world_size: int
