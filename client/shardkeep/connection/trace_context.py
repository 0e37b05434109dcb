"""W3C trace context of what the client asks: the trace of the user's environment, else one for the process."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "TRACEPARENT"
"""Where schedulers and tracers leave the trace that a process belongs to."""
_VALID: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")


class Trace:
    """One trace, and a fresh span for each request. A malformed TRACEPARENT counts as none."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = (os.environ if environment is None else environment).get(VARIABLE, "")
        match = _VALID.fullmatch(given.strip())
        self.trace_id: Final = match[1] if match else secrets.token_hex(16)
        self._flags: Final = match[2] if match else "00"

    def header(self) -> str:
        """The `traceparent` of the next request."""
        return f"00-{self.trace_id}-{secrets.token_hex(8)}-{self._flags}"
