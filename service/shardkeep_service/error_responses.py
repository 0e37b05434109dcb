"""Error answers: every one is a problem document (RFC 9457) with a stable code and the request id."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from shardkeep.protocol.error_codes import PROBLEM_CONTENT_TYPE, ErrorCode
from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreError,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
)
from shardkeep_service.database.errors import DatabaseBusy, DatabaseFailed, DatabaseFull, ValueUnstorable
from shardkeep_service.errors import Refusal
from shardkeep_service.observability.request_ids import request_id_of

_AUTHENTICATE: Final = 'Bearer realm="shardkeep"'
_FIELD_ERRORS_LIMIT: Final = 20
_RETRY_AFTER_SECONDS: Final = 1.0
_REFUSED_RETRY_AFTER_SECONDS: Final = 10.0


def problem_response(refusal: Refusal, request_id: str | None) -> Response:
    """The answer to a refused request."""
    document = {
        "type": "about:blank",
        "title": HTTPStatus(refusal.status).phrase,
        "status": refusal.status,
        "detail": refusal.detail,
        "code": refusal.code.value,
        "request_id": request_id,
        "retryable": refusal.retryable,
        "retry_after_seconds": refusal.retry_after_seconds,
        **refusal.extra,
    }
    return Response(
        json.dumps(document, allow_nan=False, default=str).encode(),
        status_code=refusal.status,
        headers=_headers(refusal),
        media_type=PROBLEM_CONTENT_TYPE,
    )


def install_error_responses(app: FastAPI) -> None:
    """Registers how each kind of error is answered; anything else is answered by the request middleware."""
    for kind in (Refusal, BlobStoreError, DatabaseFailed, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answer)


def refusal_of(error: BaseException) -> Refusal:
    """The refusal that answers an error; what we do not know is `internal` and tells nothing of its cause."""
    match error:
        case Refusal():
            return error
        case RequestValidationError():
            return _refusal_of_validation(error)
        case HTTPException():
            return _refusal_of_http(error)
        case BlobStoreError():
            return _refusal_of_blob_store(error)
        case DatabaseFailed():
            return _refusal_of_database(error)
        case _:
            return Refusal(ErrorCode.INTERNAL, "the service failed; its log has the cause under this request id")


async def _answer(request: Request, error: Exception) -> Response:
    refusal = refusal_of(error)
    request.scope.setdefault("state", {})["refusal"] = refusal
    if refusal.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        request.scope["state"]["error"] = error
    return problem_response(refusal, request_id_of(request.scope))


def _headers(refusal: Refusal) -> dict[str, str]:
    headers = dict(refusal.headers)
    if refusal.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(refusal.retry_after_seconds))
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = _AUTHENTICATE
    return headers


def _refusal_of_validation(error: RequestValidationError) -> Refusal:
    found = error.errors()
    fields = [
        {"field": ".".join(str(part) for part in item["loc"]), "message": str(item["msg"])}
        for item in found[:_FIELD_ERRORS_LIMIT]
    ]
    listed = "; ".join(f"{item['field']}: {item['message']}" for item in fields[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return Refusal(ErrorCode.MALFORMED_REQUEST, f"the request is malformed: {listed}{more}", errors=fields)


def _refusal_of_http(error: HTTPException) -> Refusal:
    if isinstance(error.__cause__, Refusal):  # raised while the body was read, and wrapped by FastAPI
        return error.__cause__
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Refusal(ErrorCode.NO_SUCH_ROUTE, "there is nothing under this path; see GET /v1/openapi.json")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refusal = Refusal(ErrorCode.METHOD_NOT_ALLOWED, "this path does not take this method")
        refusal.headers.update(
            {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
        )
        return refusal
    return Refusal(ErrorCode.MALFORMED_REQUEST, str(error.detail))


def _refusal_of_blob_store(error: BlobStoreError) -> Refusal:
    if isinstance(error, BlobStoreFull):
        return Refusal(
            ErrorCode.STORAGE_FULL, "the object store has no space left; free some or enlarge it, then retry"
        )
    if isinstance(error, BlobMissing):
        detail = "the object is gone from the store or was cut; report it as damage and choose another checkpoint"
        return Refusal(ErrorCode.CHUNK_DAMAGED, detail)
    if isinstance(error, BlobExists):
        return Refusal(ErrorCode.INTERNAL, "the store holds another object under a new key; see the service's log")
    if isinstance(error, BlobStoreRefused):
        detail = "the object store refuses this service; its log names the permission or setting to correct"
        return Refusal(ErrorCode.STORAGE_UNAVAILABLE, detail, retry_after_seconds=_REFUSED_RETRY_AFTER_SECONDS)
    if isinstance(error, BlobStoreUnavailable) and error.throttled:
        detail = "the object store asks to slow down (throttling); retry"
    else:
        detail = "the object store does not answer; retry"
    asked = error.retry_after_seconds if isinstance(error, BlobStoreUnavailable) else None
    return Refusal(ErrorCode.STORAGE_UNAVAILABLE, detail, retry_after_seconds=asked or _RETRY_AFTER_SECONDS)


def _refusal_of_database(error: DatabaseFailed) -> Refusal:
    if isinstance(error, DatabaseFull):
        return Refusal(ErrorCode.STORAGE_FULL, "the database has no space left; free some or enlarge it, then retry")
    if isinstance(error, ValueUnstorable):
        return Refusal(ErrorCode.MALFORMED_REQUEST, f"a value of the request cannot be stored: {error}")
    code, detail = ErrorCode.NOT_READY, "the database does not answer; retry"
    if isinstance(error, DatabaseBusy):
        code, detail = ErrorCode.BUSY, "the database is busy; retry"
    return Refusal(code, detail, retry_after_seconds=_RETRY_AFTER_SECONDS)
