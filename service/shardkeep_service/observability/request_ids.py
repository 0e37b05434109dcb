"""Request ids: one for every request, taken from the client when it sends a valid one, echoed in every answer."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from typing import Any, Final

from starlette.types import Scope

from shardkeep.protocol.routes import REQUEST_ID_HEADER

_VALID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER: Final = REQUEST_ID_HEADER.encode()
_current: ContextVar[str | None] = ContextVar("shardkeep_request_id", default=None)


def choose_request_id(scope: Scope) -> str:
    """The client's id, or a new one where it sent none or an invalid one; it is the current one from here on."""
    request_id = _sent_id(scope) or secrets.token_hex(8)
    _current.set(request_id)
    return request_id


def current_request_id() -> str | None:
    """The id of the request that this code serves, also in the threads it waits for; None elsewhere."""
    return _current.get()


def request_id_of(scope: Scope) -> str | None:
    """The id chosen for this request, or None outside of the request middleware."""
    state: dict[str, Any] = scope.get("state", {})
    return state.get("request_id")


def _sent_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _HEADER and _VALID.fullmatch(value):
            return str(value.decode())
    return None
