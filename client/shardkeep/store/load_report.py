"""What loading into a state did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Names by fate. `success` is true only if nothing is in the first three."""

    missing: tuple[str, ...] = ()
    """In the state and not in the checkpoint; left as they were."""
    unexpected: tuple[str, ...] = ()
    """In the checkpoint, under the state's top-level names, and not in the state; not loaded."""
    mismatched: tuple[str, ...] = ()
    """Of another shape or dtype; left as they were."""
    loaded: tuple[str, ...] = ()

    @property
    def success(self) -> bool:
        """Whether everything asked for was loaded and nothing was left."""
        return not (self.missing or self.unexpected or self.mismatched)
