"""Byte ranges of a GET (RFC 9110, section 14), decided without I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

_DIGITS: Final = 19
"""More than any size; longer numbers are not parsed, so that a header cannot make us work."""
_RANGE: Final = re.compile(rf"bytes=\s*(\d{{0,{_DIGITS}}})-(\d{{0,{_DIGITS}}})\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, end) of an object of `size_bytes`; `partial` when the answer is 206."""

    start: int
    end: int
    size_bytes: int
    partial: bool

    @property
    def length(self) -> int:
        """How many bytes are sent."""
        return self.end - self.start

    @property
    def content_range(self) -> str:
        """The value of Content-Range."""
        return f"bytes {self.start}-{self.end - 1}/{self.size_bytes}"


def choose_range(header: str | None, *, if_range: str | None, etag: str, size_bytes: int) -> ByteRange:
    """The bytes to send; refuses `range_not_satisfiable`.

    Several ranges, other units and malformed headers are ignored, as the RFC allows, and so is a range whose If-Range
    does not match: then the whole object is sent.
    """
    whole = ByteRange(0, size_bytes, size_bytes, partial=False)
    match = _RANGE.fullmatch(header) if header is not None else None
    if match is None or match[1] == match[2] == "" or (if_range is not None and if_range != etag):
        return whole
    start, end = _bounds(match[1], match[2], size_bytes)
    if match[1] and match[2] and int(match[1]) > int(match[2]):
        return whole
    if start >= min(end, size_bytes):
        raise _not_satisfiable(header or "", size_bytes)
    return ByteRange(start, min(end, size_bytes), size_bytes, partial=True)


def _bounds(first: str, last: str, size_bytes: int) -> tuple[int, int]:
    if not first:
        return max(0, size_bytes - int(last)), size_bytes
    return int(first), int(last) + 1 if last else size_bytes


def _not_satisfiable(header: str, size_bytes: int) -> Refusal:
    refusal = Refusal(
        ErrorCode.RANGE_NOT_SATISFIABLE,
        f"the range {header[:80]!r} lies outside of the {size_bytes} bytes of the chunk",
    )
    refusal.headers["content-range"] = f"bytes */{size_bytes}"
    return refusal
