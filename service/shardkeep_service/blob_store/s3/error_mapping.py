"""What botocore raises, as errors of a blob store: the one place that knows S3's codes.

Messages name the action, the bucket and the key, and what to do next; never a signed URL or a credential.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
)
from urllib3.exceptions import HTTPError

from shardkeep_service.blob_store.errors import (
    BlobExists,
    BlobMissing,
    BlobStoreError,
    BlobStoreFull,
    BlobStoreRefused,
    BlobStoreUnavailable,
)

_NO_KEY: Final = frozenset({"NoSuchKey", "NotFound", "404"})
_CONDITION: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_THROTTLED: Final = frozenset(
    {"SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "Throttling", "ThrottlingException",
     "RequestLimitExceeded", "BandwidthLimitExceeded", "TooManyRequests", "RequestThrottled", "503", "429"}
)  # fmt: skip
_FULL: Final = frozenset(
    {"QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded",
     "StorageLimitExceeded", "ServiceQuotaExceededException", "507"}
)  # fmt: skip
_DAMAGED_ON_THE_WAY: Final = frozenset(
    {"BadDigest", "InvalidDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
)
_PASSING: Final = frozenset(
    {"RequestTimeout", "InternalError", "OperationAborted", "ExpiredToken", "TokenRefreshRequired",
     "RequestTimeTooSkewed"}
)  # fmt: skip
_OTHER_PLACE: Final = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
     "301", "307"}
)  # fmt: skip
_NOT_OURS: Final = frozenset({"AccessDenied", "AllAccessDisabled", "403"})
_KEY_SETTING: Final = "SHARDKEEP_SERVICE_S3_ACCESS_KEY_ID"
_CREDENTIALS: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId", "AuthFailure", "401"}
)


def code_of(error: ClientError) -> str:
    """The code S3 answered with; the status where there is no body (HEAD)."""
    return str(error.response.get("Error", {}).get("Code", "")) or str(status_of(error))


def status_of(error: ClientError) -> int:
    """The HTTP status of the answer, 0 when unknown."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def headers_of(error: ClientError) -> Mapping[str, str]:
    """The headers of the answer, lower case."""
    return error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})


def blob_store_error(error: ClientError, *, action: str, bucket: str, what: str) -> BlobStoreError:
    """The error that an answer of the store stands for; `action` is the S3 action, `what` the key or prefix."""
    code, status = code_of(error), status_of(error)
    name = f"{action} {bucket}/{what}"
    if code in _NO_KEY:
        return BlobMissing(f"there is no {what}")
    if code == "InvalidRange" or status == 416:
        return BlobMissing(f"{what} ends before the range asked for")
    if code in _CONDITION or status in (409, 412):
        return BlobExists(f"{what} is there already")
    if code in _FULL or status == 507:
        return BlobStoreFull(f"{name}: the store has no space left ({code}); free some or raise the bucket's quota")
    if code in _DAMAGED_ON_THE_WAY:
        return BlobStoreUnavailable(f"{name}: the body arrived damaged ({code})", damaged=True)
    if code in _THROTTLED or status in (429, 503):
        return BlobStoreUnavailable(
            f"{name}: the store asks to slow down ({code})", retry_after_seconds=_retry_after(error), throttled=True
        )
    if code in _PASSING or (status >= 500 and status != 501):
        return BlobStoreUnavailable(
            f"{name}: the store failed ({code}, status {status})", retry_after_seconds=_retry_after(error)
        )
    return BlobStoreRefused(f"{name}: {_advice(error, code, action=action, bucket=bucket)}")


def _advice(error: ClientError, code: str, *, action: str, bucket: str) -> str:
    if code == "NoSuchBucket":
        return f"bucket {bucket} does not exist; make it, or correct SHARDKEEP_SERVICE_S3_BUCKET"
    if code in _OTHER_PLACE:
        region = headers_of(error).get("x-amz-bucket-region")
        place = f"it is in {region}" if region else "it is elsewhere"
        return f"bucket {bucket} is not in this region ({place}); correct SHARDKEEP_SERVICE_S3_REGION"
    if code in _CREDENTIALS:
        return f"the store does not know the credentials ({code}); correct {_KEY_SETTING} and its secret"
    if code in _NOT_OURS or status_of(error) == 403:
        lacking = f"the credentials lack s3:{action} on bucket {bucket}"
        return f"{lacking}, or its owner is not the expected one ({code}); see docs/storage.md"
    message = str(error.response.get("Error", {}).get("Message", ""))[:200]
    return f"the store refuses it ({code}, status {status_of(error)}): {message or 'without a reason'}"


def _retry_after(error: ClientError) -> float | None:
    text = headers_of(error).get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def connection_error(
    error: BotoCoreError | HTTPError | OSError, *, action: str, bucket: str, what: str
) -> BlobStoreError:
    """The error that the lack of an answer stands for."""
    name = f"{action} {bucket}/{what}"
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
        return BlobStoreRefused(f"{name}: there are no credentials; set {_KEY_SETTING} and its secret")
    if isinstance(error, SSLError) and "certificate" in str(error).lower():
        return BlobStoreRefused(
            f"{name}: the endpoint's certificate is not trusted ({error}); set SHARDKEEP_SERVICE_S3_CA_BUNDLE"
        )
    if isinstance(error, ParamValidationError):
        return BlobStoreRefused(f"{name}: {error}")
    return BlobStoreUnavailable(f"{name}: no whole answer: {type(error).__name__}: {error}")


@contextlib.contextmanager
def translated_errors(action: str, *, bucket: str, what: str) -> Iterator[None]:
    """Raises blob store errors in place of what botocore, and the body of one of its answers, may raise."""
    try:
        yield
    except ClientError as exc:
        raise blob_store_error(exc, action=action, bucket=bucket, what=what) from exc
    except (BotoCoreError, HTTPError, OSError) as exc:
        raise connection_error(exc, action=action, bucket=bucket, what=what) from exc


def error_of_item(item: Mapping[str, Any], *, action: str, bucket: str, what: str) -> BlobStoreError:
    """The error of one key in an answer that speaks of many."""
    code = str(item.get("Code", "unknown"))
    statuses = {"AccessDenied": 403, "SlowDown": 503, "InternalError": 500, "ServiceUnavailable": 503}
    answer: Any = {
        "Error": {"Code": code, "Message": str(item.get("Message", ""))},
        "ResponseMetadata": {"HTTPStatusCode": statuses.get(code, 500), "HTTPHeaders": {}},
    }
    return blob_store_error(ClientError(answer, action), action=action, bucket=bucket, what=what)
