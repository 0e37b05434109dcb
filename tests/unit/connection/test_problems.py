"""Every refusal becomes an error of `shardkeep.errors`, in one place."""

from __future__ import annotations

import json
import ssl

import pytest
import urllib3

from shardkeep import errors
from shardkeep.connection.problems import (
    error_class,
    error_from_answer,
    error_from_exception,
    is_worth_retrying,
    retry_after_seconds,
)
from shardkeep.protocol.error_codes import MEANINGS, PROBLEM_CONTENT_TYPE, ErrorCode

HEADERS = {"content-type": PROBLEM_CONTENT_TYPE}
EXPECTED = {
    400: errors.InvalidRequest, 401: errors.Unauthenticated, 403: errors.PermissionDenied, 404: errors.NotFound,
    405: errors.InvalidRequest, 408: errors.ServiceUnavailable, 409: errors.Conflict, 411: errors.InvalidRequest,
    412: errors.Conflict, 413: errors.InvalidRequest, 416: errors.InvalidRequest, 422: errors.InvalidRequest,
    428: errors.Conflict, 429: errors.ServiceUnavailable, 431: errors.InvalidRequest, 500: errors.ServiceUnavailable,
    503: errors.ServiceUnavailable, 507: errors.ServiceUnavailable,
}  # fmt: skip
SPECIAL = {
    ErrorCode.CHECKPOINT_NOT_COMMITTED: errors.CheckpointNotCommitted,
    ErrorCode.ATTEMPT_FENCED: errors.AttemptFenced,
    ErrorCode.SUPERSEDED: errors.AttemptFenced,
    ErrorCode.RUN_DELETED: errors.AttemptFenced,
    ErrorCode.QUOTA_EXCEEDED: errors.QuotaExceeded,
    ErrorCode.STEP_DISAGREES: errors.SaveConflict,
    ErrorCode.WORLD_SIZE_DISAGREES: errors.SaveConflict,
    ErrorCode.STEP_ALREADY_COMMITTED: errors.SaveConflict,
    ErrorCode.SAVE_CONTENT_DISAGREES: errors.SaveConflict,
    ErrorCode.INVENTORY_DISAGREES: errors.SaveConflict,
    ErrorCode.NO_USABLE_CHECKPOINT: errors.NoUsableCheckpoint,
    ErrorCode.CHUNK_DAMAGED: errors.IntegrityError,
}


def problem(code: str, status: int, **extra: object) -> bytes:
    body = {"title": "t", "status": status, "detail": "what happened", "code": code, "request_id": "abc", **extra}
    return json.dumps(body).encode()


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_its_class(code: ErrorCode) -> None:
    meaning = MEANINGS[code]
    body = problem(code, meaning.status, retryable=meaning.retryable)
    error = error_from_answer(meaning.status, HEADERS, body, request="GET /x")
    assert type(error) is SPECIAL.get(code, EXPECTED[meaning.status])
    assert "what happened" in str(error)
    assert "abc" in str(error)
    assert is_worth_retrying(error) is meaning.retryable


def test_further_members_are_kept() -> None:
    error = error_from_answer(409, HEADERS, problem("chunks_missing", 409, chunks=["aa"]), request="PUT /m")
    assert isinstance(error, errors.Conflict)
    assert error.extra == {"chunks": ["aa"]}
    assert (error.code, error.status, error.request_id) == ("chunks_missing", 409, "abc")


@pytest.mark.parametrize(("status", "kind", "retryable"), [
    (502, errors.ServiceUnavailable, True), (504, errors.ServiceUnavailable, True),
    (429, errors.ServiceUnavailable, True),
    (403, errors.PermissionDenied, False), (418, errors.ServiceError, False), (301, errors.ServiceError, False),
])  # fmt: skip
def test_an_answer_that_is_no_problem_document_goes_by_its_status(
    status: int, kind: type[Exception], retryable: bool
) -> None:
    error = error_from_answer(status, {"content-type": "text/html"}, b"<h1>Bad\n Gateway</h1>", request="GET /x")
    assert type(error) is kind
    assert is_worth_retrying(error) is retryable


def test_an_unknown_code_of_a_newer_service_goes_by_its_status() -> None:
    assert error_class("not_invented_yet", 404) is errors.NotFound
    assert error_class("not_invented_yet", 599) is errors.ServiceUnavailable


@pytest.mark.parametrize("exc", [
    urllib3.exceptions.ProtocolError("broken"), urllib3.exceptions.ReadTimeoutError(None, "/x", "slow"),  # type: ignore[arg-type]
    ConnectionResetError(), TimeoutError(), urllib3.exceptions.SSLError("handshake"),
])  # fmt: skip
def test_foreign_exceptions_become_connection_failed_and_are_retried(exc: Exception) -> None:
    error = error_from_exception(exc, request="GET /x")
    assert "GET /x" in str(error)
    assert is_worth_retrying(error)


def test_a_certificate_that_cannot_be_trusted_is_not_retried() -> None:
    error = error_from_exception(
        urllib3.exceptions.SSLError(ssl.SSLCertVerificationError("self-signed")), request="GET /"
    )
    error.__cause__ = urllib3.exceptions.SSLError(ssl.SSLCertVerificationError("self-signed"))
    assert not is_worth_retrying(error)


def test_retry_after_is_read_from_the_header_or_the_problem() -> None:
    assert retry_after_seconds({"retry-after": "7"}, b"") == 7
    assert retry_after_seconds(HEADERS, problem("busy", 503, retry_after_seconds=2.5)) == 2.5
    assert retry_after_seconds({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"") is None
