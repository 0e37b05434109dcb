"""Opaque cursors of lists: where the last page ended, tied to the list and the filters it belongs to."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any, Final

from fastapi import Query

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.versions import LIST_LIMIT
from shardkeep_service.errors import Refusal

MAX_CURSOR_LENGTH: Final = 40_960
"""One that ends at any name is shorter: 4,096 bytes, of which JSON makes six each at most, and base64 a third more."""
_LARGEST: Final = (1 << 63) - 1
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")

PageLimit = Annotated[int, Query(ge=1, description=f"Items in the page; more than {LIST_LIMIT} means {LIST_LIMIT}.")]
PageCursor = Annotated[
    str | None, Query(description="`next_cursor` of the page before; the filters must stay the same.")
]


def bounded_limit(limit: int) -> int:
    """The items of a page for an asked limit."""
    return min(limit, LIST_LIMIT)


def encode_cursor(kind: str, filters: Mapping[str, Any], position: tuple[str | int, ...]) -> str:
    """The cursor that continues list `kind` with these filters after `position`."""
    document = json.dumps([_fingerprint(kind, filters), *position], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


def decode_cursor(
    cursor: str | None, kind: str, filters: Mapping[str, Any], types: tuple[type, ...]
) -> tuple[Any, ...] | None:
    """The position of a cursor, None for the first page; Refusal `invalid_cursor` unless it is one of this list."""
    if cursor is None:
        return None
    document = _parse(cursor)
    if not isinstance(document, list) or len(document) != len(types) + 1:
        raise _refusal()
    if document[0] != _fingerprint(kind, filters):
        raise _refusal()
    position = tuple(document[1:])
    if any(type(part) is not expected for part, expected in zip(position, types, strict=True)):
        raise _refusal()
    if not all(_fits_column(part) for part in position):
        raise _refusal()
    return position


def _fits_column(part: str | int) -> bool:
    """Whether a query may compare a column with it: PostgreSQL takes no NUL, and UTF-8 has no surrogates."""
    if isinstance(part, str):
        return _NO_TEXT.search(part) is None
    return -_LARGEST <= part <= _LARGEST


def _parse(cursor: str) -> Any:
    if len(cursor) > MAX_CURSOR_LENGTH:
        raise _refusal()
    try:
        return json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as exc:
        raise _refusal() from exc


def _fingerprint(kind: str, filters: Mapping[str, Any]) -> str:
    canonical = json.dumps([kind, sorted((name, str(value)) for name, value in filters.items())])
    return blake2b(canonical.encode(), digest_size=8).hexdigest()


def _refusal() -> Refusal:
    return Refusal(
        ErrorCode.INVALID_CURSOR,
        "the cursor does not belong to this list with these filters; start again without a cursor",
    )
