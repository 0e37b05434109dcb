"""Object keys: what one may look like. The same rule for every store, so that a key valid here is valid everywhere."""

from __future__ import annotations

import re
from typing import Final

KEY_CHARACTERS_LIMIT: Final = 300
_PART: Final = r"[a-z0-9_-][a-z0-9_.-]{0,199}"
_KEY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX: Final = re.compile(r"[a-z0-9_./-]*")


def check_key(key: str) -> None:
    """ValueError unless `key` is parts of [a-z0-9_.-] joined by `/`, none empty or starting with a dot."""
    if len(key) > KEY_CHARACTERS_LIMIT or _KEY.fullmatch(key) is None:
        raise ValueError(f"not an object key: {key[:80]!r}")


def check_prefix(prefix: str) -> None:
    """ValueError unless `prefix` is empty or can begin a key."""
    if (
        len(prefix) > KEY_CHARACTERS_LIMIT
        or _PREFIX.fullmatch(prefix) is None
        or ".." in prefix
        or prefix.startswith("/")
    ):
        raise ValueError(f"not the beginning of an object key: {prefix[:80]!r}")
