"""What is wrong with a set of manifests, as values with stable codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MAX_INDEX_PROBLEMS = 100

COVERAGE_GAP = "coverage_gap"
OVERLAP_CONFLICT = "overlap_conflict"
DTYPE_DISAGREES = "dtype_disagrees"
SHAPE_DISAGREES = "shape_disagrees"
REPLICAS_DIVERGED = "replicas_diverged"


@dataclass(frozen=True, slots=True)
class IndexProblem:
    """Why these manifests are no whole checkpoint: stable `code`, the tensor, the ranks involved, words for people."""

    code: str
    tensor: str
    ranks: tuple[int, ...]
    detail: str


class ProblemList:
    """Collects problems up to `MAX_INDEX_PROBLEMS`, one for each code and tensor, and counts the rest."""

    def __init__(self) -> None:
        self._problems: dict[tuple[str, str], IndexProblem] = {}
        self.total = 0

    def add(self, code: str, tensor: str, ranks: Iterable[int], detail: str) -> None:
        """Note one problem, unless this tensor has one of this code already or the list is full."""
        if (code, tensor) in self._problems:
            return
        self.total += 1
        if len(self._problems) < MAX_INDEX_PROBLEMS:
            self._problems[code, tensor] = IndexProblem(code, tensor, tuple(sorted(set(ranks))), detail)

    def disagrees(self, tensor: str) -> bool:
        """Whether ranks disagree on the dtype or shape of this tensor, so that nothing else about it means much."""
        return (DTYPE_DISAGREES, tensor) in self._problems or (SHAPE_DISAGREES, tensor) in self._problems

    def problems(self) -> list[IndexProblem]:
        """The problems, sorted by tensor and code."""
        return sorted(self._problems.values(), key=lambda problem: (problem.tensor, problem.code))
