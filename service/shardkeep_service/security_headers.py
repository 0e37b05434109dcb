"""What every answer tells a browser: an answer of the API is no page, and is not to be kept.

Answers with headers of their own of these names keep those; `ui/` has its own policy.
"""

from __future__ import annotations

from typing import Final

Header = tuple[bytes, bytes]

_GUARDS: Final[tuple[Header, ...]] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)


def guarded(headers: list[Header]) -> list[Header]:
    """The headers of an answer and, beside them, those of the guards that are missing."""
    given = {name.lower() for name, _ in headers}
    return headers + [guard for guard in _GUARDS if guard[0] not in given]
