"""What an object store's refusals become: retried, asked for anew, or an error that names the store's code."""

from __future__ import annotations

import pytest

from shardkeep.connection.problems import error_from_store, is_worth_retrying
from shardkeep.connection.retries import RetryPolicy
from shardkeep.connection.store_answers import is_absent, is_there_already, needs_another_target, store_code_of
from shardkeep.errors import ServiceError


def answered(status: int, code: str | None = None, message: str = "why") -> ServiceError:
    body = b"" if code is None else f"<?xml?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return error_from_store(status, body, request="PUT https://store/bucket/key")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (503, "SlowDown"), (503, None), (500, "InternalError"), (502, None), (504, None), (429, "TooManyRequests"),
        (400, "RequestTimeout"), (409, "ConditionalRequestConflict"), (400, "IncompleteBody"), (400, "BadDigest"),
        (400, "XAmzContentChecksumMismatch"),
    ],
)  # fmt: skip
def test_what_may_pass_is_repeated(status: int, code: str | None) -> None:
    assert is_worth_retrying(answered(status, code))


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "InvalidArgument"), (404, "NoSuchBucket"), (405, "MethodNotAllowed"), (501, "NotImplemented"), (403, None)],
)
def test_what_will_not_pass_is_not_repeated_and_named(status: int, code: str | None) -> None:
    error = answered(status, code)
    assert not is_worth_retrying(error)
    assert (code or "no explanation given") in str(error)
    assert "object store" in str(error)
    assert error.status == status
    assert store_code_of(error) == code


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", True), (403, "SignatureDoesNotMatch", True), (403, "RequestTimeTooSkewed", True),
        (401, None, True), (400, "ExpiredToken", True), (400, "AuthorizationQueryParametersError", True),
        (400, "InvalidArgument", False), (404, "NoSuchKey", False), (503, "SlowDown", False),
    ],
)  # fmt: skip
def test_a_refused_url_is_told_from_a_refused_request(status: int, code: str | None, expected: bool) -> None:
    assert needs_another_target(answered(status, code)) is expected


def test_an_object_that_is_there_and_one_that_is_not() -> None:
    assert is_there_already(answered(412, "PreconditionFailed"))
    assert not is_there_already(answered(409, "ConditionalRequestConflict"))
    assert is_absent(answered(404, "NoSuchKey"))
    assert not is_absent(answered(404, "NoSuchBucket"))


def test_no_secret_of_the_answer_is_kept() -> None:
    body = (
        b"<Error><Code>SignatureDoesNotMatch</Code><Message>see https://h/k?X-Amz-Signature=1f2e and X-Amz-Date=3"
        b"</Message><AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId><StringToSign>AWS4-HMAC</StringToSign></Error>"
    )
    error = error_from_store(403, body, request="PUT https://h/k")
    for secret in ("1f2e", "AKIDEXAMPLE", "AWS4-HMAC", "X-Amz"):
        assert secret not in str(error) + repr(error) + str(error.extra)


def test_a_redirect_says_what_to_correct() -> None:
    assert "endpoint or region" in str(answered(307, "TemporaryRedirect"))


def test_a_store_that_never_answered_is_tried_for_a_part_of_the_window() -> None:
    from shardkeep.connection.direct_access import DirectAccess

    access, policy = DirectAccess(), RetryPolicy(window_seconds=100)
    assert access.policy(policy).unanswered_seconds == 10
    with pytest.raises(ServiceError), access.asking():
        raise answered(403, "AccessDenied")
    assert access.policy(policy).unanswered_seconds is None
    access.try_again()
    assert access.policy(policy).unanswered_seconds == 10
