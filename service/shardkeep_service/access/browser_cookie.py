"""The dashboard's cookie: its secret, its two names, and the CSRF word that goes with it. Pure.

Over TLS its name begins with `__Host-`: browsers take such a cookie only over TLS, for this very host and every path,
so neither plain HTTP nor a neighbouring host can plant one. The secret is random and not the token; the service keeps
its SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Final

SECURE_NAME: Final = "__Host-shardkeep"
PLAIN_NAME: Final = "shardkeep_sign_in"
"""Over plain HTTP, on this machine or where the operator allows it."""

_RANDOM_BYTES: Final = 36
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]{48}")
_CSRF: Final = b"shardkeep csrf"


def new_secret() -> str:
    """288 random bits; longer than a token, so that neither is ever taken for the other."""
    return secrets.token_urlsafe(_RANDOM_BYTES)


def is_secret(text: str) -> bool:
    """Whether the text has the shape of a secret."""
    return _SHAPE.fullmatch(text) is not None


def secret_hash(secret: str) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def csrf_of(secret: str) -> str:
    """What requests that change something carry beside the cookie: only a page that may read our answers knows it."""
    return hmac.digest(secret.encode(), _CSRF, hashlib.sha256).hex()


def csrf_agrees(secret: str, given: str | None) -> bool:
    """Whether a request's word is that of its cookie."""
    return given is not None and hmac.compare_digest(csrf_of(secret).encode(), given.encode())


def cookie_secret(cookie_headers: Sequence[str], *, takes_plain: bool) -> str | None:
    """The secret a browser sent; None without one, "" where somebody planted another beside it.

    The name that nobody else can plant comes first: else a planted plain one would put the browser into a sign-in of
    whoever planted it.
    """
    pairs = [pair.strip().partition("=") for header in cookie_headers for pair in header.split(";")]
    for name in (SECURE_NAME, PLAIN_NAME) if takes_plain else (SECURE_NAME,):
        values = [value for found, _, value in pairs if found == name and value]
        if values:
            return values[0] if len(values) == 1 else ""
    return None


def set_cookies(secret: str, *, secure: bool, seconds: int) -> list[str]:
    """The Set-Cookie headers that take a secret of the other name away and give the browser this one."""
    return [f"{_cookie('', secure=not secure)}; Max-Age=0", f"{_cookie(secret, secure=secure)}; Max-Age={seconds}"]


def clear_cookies() -> list[str]:
    """The Set-Cookie headers that take the secret away, under both names."""
    return [f"{_cookie('', secure=secure)}; Max-Age=0" for secure in (True, False)]


def _cookie(value: str, *, secure: bool) -> str:
    name = SECURE_NAME if secure else PLAIN_NAME
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}"
