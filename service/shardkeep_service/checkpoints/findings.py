"""What the manifests of all ranks say together beside tensors: values, metrics, environment. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from blake3 import blake3

from shardkeep.format.manifest import EnvironmentValue, Manifest

RANK_0_SUFFIX: Final = "@rank0"
"""A metric's mean over ranks has its own name; rank 0's, where there is more than one rank, this behind the name."""

_MAX_EXACT_INT: Final = (1 << 53) - 1


@dataclass(slots=True)
class Findings:
    """Takes manifests one at a time, in the order of ranks, and keeps a few bytes of each value."""

    _values: dict[str, _Value] = field(default_factory=dict)
    _metrics: dict[str, list[float]] = field(default_factory=dict)
    _first_metrics: Mapping[str, float] = field(default_factory=dict)
    _environment: dict[str, Any] = field(default_factory=dict)
    _ranks: int = 0

    def add(self, manifest: Manifest) -> None:
        """Merge the values, metrics and environment of one rank."""
        self._ranks += 1
        if manifest.rank == 0:
            self._environment = {name: _written(value) for name, value in manifest.environment.items()}
            self._first_metrics = dict(manifest.metrics)
        for name, number in manifest.metrics.items():
            self._metrics.setdefault(name, []).append(number)
        for value in manifest.values:
            digest = blake3(value.encoded).digest(16)
            known = self._values.setdefault(value.path, _Value(digest, manifest.rank))
            known.holders += 1
            known.differs |= known.digest != digest
            known.flagged |= value.per_rank

    @property
    def environment(self) -> dict[str, Any]:
        """Rank 0's, as JSON and its readers can hold it."""
        return self._environment

    def per_rank_values(self) -> list[str]:
        """Paths of values that differ by rank without being flagged, and of flagged ones that rank 0 does not have."""
        return sorted(
            path for path, value in self._values.items() if (value.first_rank > 0 if value.flagged else value.differs)
        )

    def values_of_some_ranks(self) -> dict[str, int]:
        """Paths of values that only some ranks have, equal on all these, with the lowest of them."""
        return {
            path: value.first_rank
            for path, value in sorted(self._values.items())
            if value.holders < self._ranks and not (value.differs or value.flagged)
        }

    def metrics(self) -> dict[str, float | str]:
        """The mean over the ranks that gave it, and rank 0's beside it, written as the protocol does."""
        found = {name: _mean(numbers) for name, numbers in self._metrics.items()}
        if self._ranks > 1:
            found.update({name + RANK_0_SUFFIX: number for name, number in self._first_metrics.items()})
        return {name: written_metric(number) for name, number in sorted(found.items())}


@dataclass(slots=True)
class _Value:
    digest: bytes
    first_rank: int
    holders: int = 0
    differs: bool = False
    flagged: bool = False


def written_metric(number: float) -> float | str:
    """A metric as JSON can hold it."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


def _written(value: EnvironmentValue) -> EnvironmentValue:
    """Numbers that JSON lacks, or that a double cannot hold, as texts. PostgreSQL refuses the former: the commit would
    fail again and again.
    """
    if isinstance(value, float):
        return written_metric(value)
    return str(value) if type(value) is int and abs(value) > _MAX_EXACT_INT else value


def _mean(numbers: Sequence[float]) -> float:
    """The mean; nan where there is a nan or both infinities. Dividing first keeps large numbers from overflowing."""
    if math.inf in numbers and -math.inf in numbers:
        return math.nan
    return math.fsum(number / len(numbers) for number in numbers)
