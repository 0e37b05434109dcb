"""In which order units are used: the last pass foretells the next, as long as it goes the same way."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 100_000
"""Uses after which a pass that nobody ends begins anew."""


class UseOrder:
    """The uses of one phase, forward or backward. Ranks that use the same units foretell the same ones."""

    def __init__(self) -> None:
        self._before: list[int] = []
        self._now: list[int] = []
        self._is_as_before = True

    @property
    def first(self) -> int | None:
        """What a pass begins with, as far as is known."""
        return self._before[0] if self._before else None

    def begin(self) -> None:
        """The next use is the first of a pass. Idempotent."""
        if self._now:
            self._before, self._now = self._now, []
        self._is_as_before = True

    def use(self, unit: int) -> None:
        """A unit is used; again and again in a row counts once."""
        if self._now and self._now[-1] == unit:
            return
        if len(self._now) == _LONGEST:
            self.begin()
        place = len(self._now)
        self._is_as_before = self._is_as_before and place < len(self._before) and self._before[place] == unit
        self._now.append(unit)

    @property
    def next(self) -> int | None:
        """What comes after the present use; None at the end of a pass, or in one that goes another way."""
        place = len(self._now)
        return self._before[place] if self._is_as_before and place < len(self._before) else None

    @property
    def is_at_end(self) -> bool:
        """Whether the pass has gone all the way the last one went."""
        return self._is_as_before and bool(self._before) and len(self._now) == len(self._before)
