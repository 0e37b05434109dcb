"""What an examination of a blob store says, one fact a line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `advice` says what an operator can do; empty where nothing need be done."""

    name: str
    level: Level
    detail: str
    advice: str = ""
