"""Request ids: one for every request, taken from the client when it sends a valid one, echoed in every answer."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

from starlette.types import Scope

from shardkeep.protocol.routes import REQUEST_ID_HEADER

_VALID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER: Final = REQUEST_ID_HEADER.encode()


def choose_request_id(scope: Scope) -> str:
    """The client's id, or a new one where it sent none or an invalid one."""
    for name, value in scope["headers"]:
        if name == _HEADER and _VALID.fullmatch(value):
            return str(value.decode())
    return secrets.token_hex(8)


def request_id_of(scope: Scope) -> str | None:
    """The id chosen for this request, or None outside of the request middleware."""
    state: dict[str, Any] = scope.get("state", {})
    return state.get("request_id")
