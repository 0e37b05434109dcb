"""Token texts: how a bearer token is made, recognised and hashed. The text itself is never stored by the service.

`shardkeep_` + 27 base62 characters (160 random bits) + 6 base62 characters of CRC-32: scanners find the prefix, and a
mistyped token is refused without asking the database.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from typing import Final

PREFIX: Final = "shardkeep_"
RANDOM_CHARACTERS: Final = 27
CHECK_CHARACTERS: Final = 6
SHOWN_CHARACTERS: Final = len(PREFIX) + 4
"""The part that lists and logs may show."""

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHAPE: Final = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{RANDOM_CHARACTERS + CHECK_CHARACTERS}}}")


def new_token_text() -> str:
    """A fresh token."""
    body = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_CHARACTERS))
    return f"{PREFIX}{body}{_check_characters(body)}"


def is_token_text(text: str) -> bool:
    """Whether `text` has the shape and the check characters of a token; says nothing about its being known."""
    if _SHAPE.fullmatch(text) is None:
        return False
    body = text[len(PREFIX) : -CHECK_CHARACTERS]
    return text[-CHECK_CHARACTERS:] == _check_characters(body)


def token_hash(text: str) -> str:
    """SHA-256 in hexadecimal: enough for a secret of 160 random bits."""
    return hashlib.sha256(text.encode()).hexdigest()


def shown_part(text: str) -> str:
    """The first characters, to recognise a token by."""
    return text[:SHOWN_CHARACTERS]


def _check_characters(body: str) -> str:
    number = zlib.crc32(body.encode())
    characters = []
    for _ in range(CHECK_CHARACTERS):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))
