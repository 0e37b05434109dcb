"""What an object store's refusals mean. Their bodies are XML and name secrets: only code and message are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from shardkeep.errors import Conflict, NotFound, PermissionDenied, ServiceError, ShardkeepError, Unauthenticated
from shardkeep.protocol.error_codes import ErrorCode

STORE_CODE: Final = "store_code"
"""Where `ServiceError.extra` has the store's own code."""
_CODE: Final = re.compile(rb"<Code>\s*([A-Za-z0-9._-]{1,80})\s*</Code>")
_MESSAGE: Final = re.compile(rb"<Message>([^<]{1,300})")
_QUERY: Final = re.compile(r"\?\S*|X-Amz-\S+", re.IGNORECASE)
_DAMAGED: Final = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})
_PASSING: Final = frozenset({
    "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "Throttling", "ThrottlingException",
    "TooManyRequests", "ConditionalRequestConflict", "OperationAborted", "IncompleteBody",
})  # fmt: skip
"""Retryable whatever the status: S3 answers RequestTimeout with 400 and a race of conditional PUTs with 409."""
_NEEDS_ANOTHER_TARGET: Final = frozenset({
    "ExpiredToken", "ExpiredPresignRequest", "RequestExpired", "TokenRefreshRequired", "InvalidToken",
    "AuthorizationQueryParametersError", "RequestTimeTooSkewed",
})  # fmt: skip
_RETRYABLE_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


def describe_refusal(status: int, body: bytes, *, request: str) -> tuple[str, str, str | None, bool]:
    """Message, stable code, the store's own code, and whether to repeat. `request` is method and path, no query."""
    found, said = _CODE.search(body), _MESSAGE.search(body)
    store_code = found[1].decode() if found else None
    message = _QUERY.sub("", said[1].decode("utf-8", "replace")).strip() if said else ""
    explained = ": ".join(part for part in (store_code, message) if part) or "no explanation given"
    code = ErrorCode.CHECKSUM_MISMATCH if store_code in _DAMAGED else f"http_{status}"
    retryable = status in _RETRYABLE_STATUS or store_code in _PASSING or store_code in _DAMAGED
    return f"{request} was answered {status} by the object store: {explained}", str(code), store_code, retryable


def store_code_of(error: ShardkeepError) -> str | None:
    """The object store's own code in an error, if it came from one."""
    return error.extra.get(STORE_CODE) if isinstance(error, ServiceError) else None


def needs_another_target(error: ServiceError) -> bool:
    """Whether the refusal is of the signed URL, not of what was asked: another one may be taken."""
    return isinstance(error, PermissionDenied | Unauthenticated) or store_code_of(error) in _NEEDS_ANOTHER_TARGET


def is_absent(error: ServiceError) -> bool:
    """Whether the object is not there; not that the bucket is not."""
    return isinstance(error, NotFound) and store_code_of(error) != "NoSuchBucket"


def is_there_already(error: ServiceError) -> bool:
    """Whether a create-only PUT found the object there: an earlier try, or another rank, was first."""
    return isinstance(error, Conflict) and error.status == 412


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by lower-case name, so that none is sent twice."""
    return {name.lower(): value for name, value in headers.items()}
