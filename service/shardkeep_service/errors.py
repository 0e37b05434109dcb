"""What the service refuses: one exception that carries a stable code."""

from __future__ import annotations

from typing import Any

from shardkeep.protocol.error_codes import MEANINGS, ErrorCode


class Refusal(Exception):
    """A request that is answered with a problem document.

    `detail` says what, which, and what to do next; `extra` are further members of the document (see
    `shardkeep.protocol.messages.Problem`).
    """

    def __init__(self, code: ErrorCode, detail: str, *, retry_after_seconds: float | None = None, **extra: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.retry_after_seconds = retry_after_seconds
        self.extra = extra
        self.headers: dict[str, str] = {}
        """Further headers of the answer, `content-range` say."""

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return MEANINGS[self.code].status

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without anyone changing anything."""
        return MEANINGS[self.code].retryable
