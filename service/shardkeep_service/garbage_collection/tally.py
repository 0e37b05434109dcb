"""What a pass has done so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Tally:
    """Counts of one pass, kept with its place, so that a resumed pass goes on counting."""

    purged_checkpoints: int = 0
    cleared_aborted_checkpoints: int = 0
    condemned_chunks: int = 0
    condemned_bytes: int = 0
    removed_chunks: int = 0
    removed_bytes: int = 0
    listed_objects: int = 0
    new_strays: int = 0
    removed_strays: int = 0
    removed_stray_bytes: int = 0

    def stored(self) -> dict[str, Any]:
        """As it is kept in the database."""
        return asdict(self)

    @classmethod
    def of_stored(cls, stored: dict[str, Any]) -> Tally:
        """The tally that was kept; what a newer version counted beside it is left out."""
        return cls(**{name: value for name, value in stored.items() if name in cls.__slots__})
