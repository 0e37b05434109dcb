"""The one place where refused and failed requests become errors of `shardkeep.errors`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

import urllib3
from pydantic import ValidationError

from shardkeep.connection.store_answers import STORE_CODE, describe_refusal
from shardkeep.errors import (
    AttemptFenced,
    CheckpointNotCommitted,
    Conflict,
    ConnectionFailed,
    IntegrityError,
    InvalidRequest,
    NotFound,
    NoUsableCheckpoint,
    PermissionDenied,
    QuotaExceeded,
    SaveConflict,
    ServiceError,
    ServiceUnavailable,
    ShardkeepError,
    Unauthenticated,
)
from shardkeep.protocol.error_codes import PROBLEM_CONTENT_TYPE, ErrorCode
from shardkeep.protocol.messages import PassedOver, Problem

_BY_CODE: Final[dict[str, type[ServiceError]]] = {
    ErrorCode.CHECKPOINT_NOT_COMMITTED: CheckpointNotCommitted,
    ErrorCode.QUOTA_EXCEEDED: QuotaExceeded,
    ErrorCode.ATTEMPT_FENCED: AttemptFenced,
    ErrorCode.SUPERSEDED: AttemptFenced,
    ErrorCode.RUN_DELETED: AttemptFenced,
    ErrorCode.STEP_DISAGREES: SaveConflict,
    ErrorCode.WORLD_SIZE_DISAGREES: SaveConflict,
    ErrorCode.STEP_ALREADY_COMMITTED: SaveConflict,
    ErrorCode.SAVE_CONTENT_DISAGREES: SaveConflict,
    ErrorCode.INVENTORY_DISAGREES: SaveConflict,
}
_BY_STATUS: Final[dict[int, type[ServiceError]]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: PermissionDenied,
    404: NotFound,
    405: InvalidRequest,
    409: Conflict,
    411: InvalidRequest,
    412: Conflict,
    413: InvalidRequest,
    415: InvalidRequest,
    416: InvalidRequest,
    422: InvalidRequest,
    428: Conflict,
    431: InvalidRequest,
}
_RETRYABLE_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""For answers that are no problem document: a proxy's or an object store's."""
DAMAGE_CODES: Final = frozenset({
    ErrorCode.BODY_LENGTH_MISMATCH, ErrorCode.DIGEST_MISMATCH, ErrorCode.CHECKSUM_MISMATCH,
})  # fmt: skip
"""The bytes may have been damaged on the way: worth a few tries, not a whole window."""


def error_from_answer(status: int, headers: Mapping[str, str], body: bytes, *, request: str) -> ShardkeepError:
    """The error that an answer outside 2xx stands for. `request` (method and path) goes into the message."""
    problem = _problem(headers, body)
    if problem is None:
        return _error_without_problem(status, headers, body, request)
    message = f"{problem.detail} [{problem.code}, request {problem.request_id}]"
    extra = problem.model_extra or {}
    if problem.code == ErrorCode.NO_USABLE_CHECKPOINT:
        return NoUsableCheckpoint(message, passed_over=_passed_over(extra.get("passed_over")))
    if problem.code == ErrorCode.CHUNK_DAMAGED:
        return IntegrityError(message)
    return error_class(problem.code, status)(
        message,
        code=problem.code,
        status=status,
        request_id=problem.request_id,
        retryable=problem.retryable,
        extra=extra,
    )


def error_from_store(status: int, body: bytes, *, request: str) -> ServiceError:
    """The error that an object store's answer outside 2xx stands for; `extra` has the store's own code."""
    message, code, store_code, retryable = describe_refusal(status, body, request=request)
    if 300 <= status < 400:
        message += "; redirects are not followed: correct the service's S3 endpoint or region"
    extra = {} if store_code is None else {STORE_CODE: store_code}
    return error_class(code, status)(message, code=code, status=status, retryable=retryable, extra=extra)


def error_class(code: str, status: int) -> type[ServiceError]:
    """The class for a problem code; an unknown code, from a newer service, goes by its status."""
    by_status = _BY_STATUS.get(status, ServiceUnavailable if status >= 500 or status in {408, 429} else ServiceError)
    return _BY_CODE.get(code, by_status)


def error_from_exception(exc: Exception, *, request: str) -> ConnectionFailed:
    """The error that a failed exchange stands for; raise it `from exc`."""
    return ConnectionFailed(f"{request}: {_reason(exc)}")


def is_worth_retrying(error: ShardkeepError) -> bool:
    """Whether the same request may succeed when sent again without anyone changing anything."""
    if isinstance(error, ServiceError):
        return error.retryable
    return isinstance(error, ConnectionFailed) and not _is_certificate_failure(error)


def retry_after_seconds(headers: Mapping[str, str], body: bytes) -> float | None:
    """How long the answer asks to wait, from the header or the problem document; dates are not understood."""
    value = headers.get("retry-after", "")
    if value.isdigit():
        return float(value)
    problem = _problem(headers, body)
    return problem.retry_after_seconds if problem else None


def _problem(headers: Mapping[str, str], body: bytes) -> Problem | None:
    if not headers.get("content-type", "").startswith(PROBLEM_CONTENT_TYPE):
        return None
    try:
        return Problem.model_validate_json(body)
    except ValidationError:
        return None


def _error_without_problem(status: int, headers: Mapping[str, str], body: bytes, request: str) -> ServiceError:
    if 300 <= status < 400:
        hint = "redirects are not followed, so that no token leaves the service; set SHARDKEEP_URL to the final address"
    else:
        hint = " ".join(body[:300].decode("utf-8", "replace").split()) or "no explanation given"
    return error_class(f"http_{status}", status)(
        f"{request} was answered {status} by something that is not a Shardkeep service: {hint}",
        code=f"http_{status}",
        status=status,
        request_id=headers.get("x-request-id"),
        retryable=status in _RETRYABLE_STATUS,
    )


def _passed_over(items: object) -> list[PassedOver]:
    if not isinstance(items, list):
        return []
    try:
        return [PassedOver.model_validate(item) for item in items]
    except ValidationError:
        return []


def _reason(exc: Exception) -> str:
    if isinstance(exc, urllib3.exceptions.NewConnectionError):
        return f"no connection could be made ({exc})"
    if isinstance(exc, urllib3.exceptions.TimeoutError):
        return f"timed out ({exc})"
    if isinstance(exc, urllib3.exceptions.SSLError):
        return f"TLS failed ({exc})"
    return f"the connection broke ({exc!r})"


def _is_certificate_failure(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        nested = error.args[0] if error.args and isinstance(error.args[0], BaseException) else None
        error = error.__cause__ or error.__context__ or nested
    return False
