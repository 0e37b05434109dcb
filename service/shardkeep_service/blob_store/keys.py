"""Object keys: what one may look like. The same rule for every store, so that a key valid here is valid everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

KEY_CHARACTERS_LIMIT: Final = 300
_PART: Final = r"[a-z0-9_-][a-z0-9_.-]{0,199}"
_KEY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_PREFIX: Final = re.compile(r"[a-z0-9_./-]*")


def check_key(key: str) -> None:
    """ValueError unless `key` is parts of [a-z0-9_.-] joined by `/`, none empty or starting with a dot."""
    if len(key) > KEY_CHARACTERS_LIMIT or _KEY.fullmatch(key) is None:
        raise ValueError(f"not an object key: {key[:80]!r}")


def check_keys(keys: Sequence[str]) -> None:
    """ValueError unless each is a key; a single key given as text is refused too, for its characters may be keys."""
    if isinstance(keys, str):
        raise ValueError(f"a sequence of object keys is needed, not one key: {keys[:80]!r}")  # noqa: TRY004  (as above)
    for key in keys:
        check_key(key)


def check_prefix(prefix: str) -> None:
    """ValueError unless `prefix` is empty or can begin a key."""
    if (
        len(prefix) > KEY_CHARACTERS_LIMIT
        or _PREFIX.fullmatch(prefix) is None
        or ".." in prefix
        or prefix.startswith("/")
    ):
        raise ValueError(f"not the beginning of an object key: {prefix[:80]!r}")
