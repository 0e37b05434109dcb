"""Redaction: what must never stand in a log line, an error's text or anywhere else that people read.

Secrets are recognised by their shape, wherever they stand: bearer tokens, signed query strings and headers, passwords
in URLs and connection strings. Beside that, the very values of the settings' secrets are hidden. Redaction is the last
net: nothing logs a secret on purpose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from structlog.typing import EventDict

HIDDEN: Final = "[hidden]"
_SECRET_MEMBERS: Final = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "token",
        "password",
        "secret",
        "cookie",
        "set-cookie",
        "csrf",
        "x-shardkeep-csrf",
        "secret_access_key",
        "session_token",
        "x-amz-signature",
        "x-amz-security-token",
    }
)
_SHAPES: Final = (
    # A token of ours: what lists show of it stays, so that it can be told which it was.
    (("shardkeep_",), re.compile(r"(shardkeep_[0-9A-Za-z]{4})[0-9A-Za-z]{8,}"), rf"\1{HIDDEN}"),
    # The dashboard's cookie, and the word that goes with it.
    (
        ("__host-shardkeep", "shardkeep_sign_in"),
        re.compile(r"(?i)(__host-shardkeep|shardkeep_sign_in)(=)[A-Za-z0-9_-]{8,}"),
        rf"\1\2{HIDDEN}",
    ),
    (
        ("shardkeep-csrf",),
        re.compile(r"(?i)(shardkeep-csrf[\\'\"]*\s*[:=,]\s*b?[\\'\"]*)[0-9a-f]{16,}"),
        rf"\1{HIDDEN}",
    ),
    (("bearer ", "basic "), re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}"), rf"\1 {HIDDEN}"),
    # AWS: query strings of presigned requests, and the headers of signed ones.
    (
        ("x-amz-", "awsaccesskeyid"),
        re.compile(r"(?i)\b(x-amz-(?:signature|credential|security-token)|awsaccesskeyid)(=|%3D)[^&\s\"'<>]+"),
        rf"\1\2{HIDDEN}",
    ),
    (
        ("credential=", "signature="),
        re.compile(r"(?i)\b(credential|signature)=[^&,\s\"'<>]{8,}"),
        rf"\1={HIDDEN}",
    ),
    (
        ("x-amz-security-token",),
        re.compile(r"(?i)(x-amz-security-token[\\'\"]*\s*:\s*b?[\\'\"]*)[A-Za-z0-9+/=]{8,}"),
        rf"\1{HIDDEN}",
    ),
    # user:password@ of any URL, and the password of a connection string.
    (("://",), re.compile(r"(?i)([a-z][a-z0-9+.-]*://[^:/?#@\s\"']*):[^/?#\s\"']*@"), rf"\1:{HIDDEN}@"),
    (
        ("password", "passwd", "pwd"),
        re.compile(r"(?i)\b(password|passwd|pwd)(\s*=\s*)(?:'[^']*'|[^\s&;'\"]+)"),
        rf"\1\2{HIDDEN}",
    ),
)
"""Each with words of which one must occur: looking for those costs a fiftieth of the expressions."""
_SHORTEST: Final = 6
"""A shorter value is no secret, and hiding it would eat ordinary words."""
_DEPTH_LIMIT: Final = 8


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """The text without what looks like a secret, and without these values."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    lowered = text.lower()
    for words, shape, replacement in _SHAPES:
        if any(word in lowered for word in words):
            text = shape.sub(replacement, text)
    return text


class Redactor:
    """The last two structlog processors: `hide_members` before an event becomes text, `hide_text` after it."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        long_enough = {secret for secret in secrets if len(secret) >= _SHORTEST}
        escaped = {json.dumps(secret)[1:-1] for secret in long_enough}
        self._secrets = sorted(long_enough | escaped, key=len, reverse=True)

    def hide_members(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        """Hides what is a secret by its name, also in members of members."""
        return {name: _hidden_member(name, value, _DEPTH_LIMIT) for name, value in event.items()}

    def hide_text(self, _logger: Any, _method: str, line: Any) -> Any:
        """Hides what looks like a secret in a finished line."""
        return redact(line, self._secrets) if isinstance(line, str) else line


def _hidden_member(name: object, value: object, depth: int) -> object:
    if isinstance(name, str) and value is not None and name.lower() in _SECRET_MEMBERS:
        return HIDDEN
    if depth and isinstance(value, Mapping):
        return {key: _hidden_member(key, item, depth - 1) for key, item in value.items()}
    return value
