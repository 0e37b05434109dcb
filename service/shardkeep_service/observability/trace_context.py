"""W3C trace context: one trace through client and service.

A valid `traceparent` of the client is taken over, with a span of our own below it; anything else begins a new trace, as
the recommendation asks. The answer echoes ours, and every log line of the request says its `trace_id`. `tracestate` is
passed on unread, and dropped where it is malformed.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import Scope
from structlog.typing import EventDict

from shardkeep.protocol.routes import TRACE_HEADER, TRACE_STATE_HEADER

_VALID: Final = re.compile(
    rb"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_VALID_STATE: Final = re.compile(rb"[\x20-\x7e]{1,512}")
_SAMPLED: Final = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Where a request stands: its trace, and the span that serves it."""

    trace_id: str
    span_id: str
    sampled: bool
    parent_id: str | None = None
    """The client's span; None where the trace begins here."""
    state: str | None = None

    @property
    def header(self) -> str:
        """The `traceparent` that names our span."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


_current: ContextVar[TraceContext | None] = ContextVar("shardkeep_trace", default=None)


def begin_trace(scope: Scope) -> TraceContext:
    """The context of a request; it is the current one from here on."""
    headers = [(name, value) for name, value in scope["headers"] if name in _HEADERS]
    found = [value for name, value in headers if name == TRACE_HEADER.encode()]
    context = _continued(found[0], headers) if len(found) == 1 else None
    context = context or TraceContext(secrets.token_hex(16), secrets.token_hex(8), sampled=False)
    _current.set(context)
    return context


def current_trace() -> TraceContext | None:
    """The context of the request that this code serves, also in the threads it waits for; None elsewhere."""
    return _current.get()


def add_trace(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: the trace of the request that a line is about."""
    context = _current.get()
    if context is not None:
        event.setdefault("trace_id", context.trace_id)
    return event


def _continued(value: bytes, headers: list[tuple[bytes, bytes]]) -> TraceContext | None:
    """The client's trace with a span of ours; None for what is not valid: versions above 0 may have more members."""
    match = _VALID.fullmatch(value)
    if match is None or match["version"] == b"ff" or (match["version"] == b"00" and match["more"]):
        return None
    trace, span = match["trace"].decode(), match["span"].decode()
    if not int(trace, 16) or not int(span, 16):
        return None
    states = [state for name, state in headers if name == TRACE_STATE_HEADER.encode()]
    state = b",".join(states)
    kept = state.decode() if _VALID_STATE.fullmatch(state) else None
    return TraceContext(trace, secrets.token_hex(8), bool(int(match["flags"], 16) & _SAMPLED), span, kept)


_HEADERS: Final = frozenset({TRACE_HEADER.encode(), TRACE_STATE_HEADER.encode()})
