"""The bearer token of a request: reading the Authorization header. Whose token it is, `gate.py` says."""

from __future__ import annotations

from typing import Final

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

SEND_BEARER: Final = "send the token as `Authorization: Bearer shardkeep_...`"
"""What to do about `token_missing`."""

_LONGEST_TEXT: Final = 200


def bearer_token(authorization: str | None) -> str:
    """The token in an Authorization header; `token_missing` refuses its absence and any other scheme."""
    text = find_bearer_token(authorization)
    if text is None:
        raise Refusal(ErrorCode.TOKEN_MISSING, SEND_BEARER)
    return text


def find_bearer_token(authorization: str | None) -> str | None:
    """The token in an Authorization header, or None: a proxy may use the header for a scheme of its own."""
    scheme, _, text = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        return None
    return text.strip()[:_LONGEST_TEXT]
