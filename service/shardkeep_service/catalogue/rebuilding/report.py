"""What a rebuild found, restored and missed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

PROBLEMS_NAMED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that an operator should know: what (an id or a key), and what is wrong with it."""

    what: str
    detail: str


@dataclass(slots=True)
class RebuildReport:
    """Counts of what the bucket holds and of what the database was given for it."""

    objects: int = 0
    projects: int = 0
    runs: int = 0
    attempts: int = 0
    checkpoints: int = 0
    """Committed (or deleted, restorable) ones that are now known and were not before."""
    changed: int = 0
    """Known ones whose pin, tags or deletion were brought up to date."""
    unconfirmed: list[str] = field(default_factory=list)
    incomplete: int = 0
    """Saves that never became whole: their objects are left to collection."""
    chunks: int = 0
    """Chunks that the restored checkpoints name and that are there."""
    lost_chunks: int = 0
    quarantined: list[str] = field(default_factory=list)
    """Restored checkpoints that cannot be loaded whole."""
    purged: int = 0
    """Checkpoints the database knew, whose records and manifests were removed after its backup."""
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)

    def tell(self, what: str, detail: str) -> None:
        """Notes a problem; beyond a thousand they are only counted."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_NAMED:
            self.problems.append(Problem(what, detail))

    def as_json(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return asdict(self)
