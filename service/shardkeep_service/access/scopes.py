"""Scopes: what a token may do. Each one includes those below it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """metrics < read < write < delete < admin.

    `metrics` may read the service's metrics and ask what it is itself, nothing else; `delete` also deletes and restores
    checkpoints and runs; `admin` also sets retention, quotas and tokens (of its projects, if it is bound to some).
    """

    METRICS = "metrics"
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    ADMIN = "admin"

    def includes(self, needed: Scope) -> bool:
        """Whether a token of this scope may do what needs `needed`."""
        return _ORDER[self] >= _ORDER[needed]


_ORDER: Final = {scope: position for position, scope in enumerate(Scope)}
