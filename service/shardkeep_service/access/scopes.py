"""Scopes: what a token may do. Each one includes those below it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """read < write < admin."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: Scope) -> bool:
        """Whether a token of this scope may do what needs `needed`."""
        return _ORDER[self] >= _ORDER[needed]


_ORDER: Final = {scope: position for position, scope in enumerate(Scope)}
