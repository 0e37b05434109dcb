"""Which refusal answers which error."""

from __future__ import annotations

import json

import pytest
from starlette.exceptions import HTTPException

from shardkeep.protocol.error_codes import MEANINGS, ErrorCode
from shardkeep_service.blob_store import errors as blob_store_errors
from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreError,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
)
from shardkeep_service.database import errors as database_errors
from shardkeep_service.database.errors import (
    DatabaseBusy,
    DatabaseFailed,
    DatabaseFull,
    DatabaseUnavailable,
    ValueUnstorable,
)
from shardkeep_service.error_responses import problem_response, refusal_of
from shardkeep_service.errors import Refusal

EXPECTED = {
    BlobStoreError: ErrorCode.STORAGE_UNAVAILABLE,
    BlobStoreUnavailable: ErrorCode.STORAGE_UNAVAILABLE,
    BlobStoreRefused: ErrorCode.STORAGE_UNAVAILABLE,
    BlobStoreFull: ErrorCode.STORAGE_FULL,
    BlobMissing: ErrorCode.CHUNK_DAMAGED,
    BlobExists: ErrorCode.INTERNAL,
    DatabaseFailed: ErrorCode.NOT_READY,
    DatabaseUnavailable: ErrorCode.NOT_READY,
    DatabaseBusy: ErrorCode.BUSY,
    DatabaseFull: ErrorCode.STORAGE_FULL,
    RuntimeError: ErrorCode.INTERNAL,
}
SAYS_WHY = {ValueUnstorable: ErrorCode.MALFORMED_REQUEST}
"""Its message is about the client's own value."""


def test_every_error_of_the_adapters_has_an_answer() -> None:
    for module in (blob_store_errors, database_errors):
        kinds = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Exception)}
        assert kinds <= {*EXPECTED, *SAYS_WHY}


@pytest.mark.parametrize(("kind", "code"), EXPECTED.items())
def test_errors_are_answered_without_their_message(kind: type[Exception], code: ErrorCode) -> None:
    refusal = refusal_of(kind("/secret/path"))
    assert refusal.code is code
    assert "secret" not in refusal.detail


def test_a_refusal_raised_while_a_body_was_read_keeps_its_code() -> None:
    error = HTTPException(400, "There was an error parsing the body")
    error.__cause__ = Refusal(ErrorCode.BODY_TOO_LARGE, "too large")
    assert refusal_of(error).code is ErrorCode.BODY_TOO_LARGE


@pytest.mark.parametrize("code", list(MEANINGS))
def test_every_code_makes_a_document(code: ErrorCode) -> None:
    answer = problem_response(Refusal(code, "why", retry_after_seconds=0.2, chunks=["a"]), "request-1")
    document = json.loads(bytes(answer.body))
    assert answer.status_code == document["status"] == MEANINGS[code].status
    assert (document["code"], document["request_id"], document["chunks"]) == (code.value, "request-1", ["a"])
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["content-type"] == "application/problem+json"


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ErrorCode)
