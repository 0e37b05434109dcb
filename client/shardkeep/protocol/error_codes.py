"""Stable error codes: the `code` member of every problem document (RFC 9457), its HTTP status and whether to retry.

A code never changes its meaning. Retryable means: the same request, sent again, may succeed without anyone changing
anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PROBLEM_CONTENT_TYPE: Final = "application/problem+json"


class ErrorCode(StrEnum):
    """Every code the service answers with."""

    # 400, 411, 413, 415, 416, 422: the request itself
    MALFORMED_REQUEST = "malformed_request"
    INVALID_NAME = "invalid_name"
    INVALID_CURSOR = "invalid_cursor"
    EMPTY_POLICY = "empty_policy"
    MALFORMED_MANIFEST = "malformed_manifest"
    UNSUPPORTED_VERSION = "unsupported_version"
    UNSUPPORTED_CODEC = "unsupported_codec"
    RANK_OUT_OF_RANGE = "rank_out_of_range"
    LENGTH_REQUIRED = "length_required"
    BODY_TOO_LARGE = "body_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    BODY_LENGTH_MISMATCH = "body_length_mismatch"
    DIGEST_MISMATCH = "digest_mismatch"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    RANGE_NOT_SATISFIABLE = "range_not_satisfiable"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    # 401, 403
    TOKEN_MISSING = "token_missing"
    TOKEN_INVALID = "token_invalid"
    TOKEN_EXPIRED = "token_expired"
    SCOPE_TOO_NARROW = "scope_too_narrow"
    QUOTA_EXCEEDED = "quota_exceeded"
    # 401, 403, 429: the dashboard's cookie
    SIGN_IN_ENDED = "sign_in_ended"
    ORIGIN_REFUSED = "origin_refused"
    CSRF_MISSING = "csrf_missing"
    TOO_MANY_SIGN_INS = "too_many_sign_ins"
    # 404
    NO_SUCH_ROUTE = "no_such_route"
    UNKNOWN_PROJECT = "unknown_project"
    UNKNOWN_RUN = "unknown_run"
    UNKNOWN_ATTEMPT = "unknown_attempt"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    UNKNOWN_CHUNK = "unknown_chunk"
    UNKNOWN_MANIFEST = "unknown_manifest"
    UNKNOWN_TENSOR = "unknown_tensor"
    UNKNOWN_TOKEN = "unknown_token"
    CHECKPOINT_NOT_COMMITTED = "checkpoint_not_committed"
    # 408
    IDLE_TIMEOUT = "idle_timeout"
    # 409, 412, 428: conflicts with what is stored
    ATTEMPT_FENCED = "attempt_fenced"
    NO_ATTEMPT = "no_attempt"
    RESUME_UNDECIDED = "resume_undecided"
    RESUME_DECIDED_OTHERWISE = "resume_decided_otherwise"
    NO_USABLE_CHECKPOINT = "no_usable_checkpoint"
    STEP_DISAGREES = "step_disagrees"
    WORLD_SIZE_DISAGREES = "world_size_disagrees"
    STEP_ALREADY_COMMITTED = "step_already_committed"
    SAVE_CONTENT_DISAGREES = "save_content_disagrees"
    INVENTORY_DISAGREES = "inventory_disagrees"
    CHECKPOINT_ABORTED = "checkpoint_aborted"
    CHECKPOINT_NOT_OPEN = "checkpoint_not_open"
    CHUNKS_MISSING = "chunks_missing"
    VERSION_CHANGED = "version_changed"
    VERSION_REQUIRED = "version_required"
    CHECKPOINT_PINNED = "checkpoint_pinned"
    RUN_DELETED = "run_deleted"
    RUN_IN_USE = "run_in_use"
    NAME_TAKEN = "name_taken"
    # reasons a checkpoint was aborted; also the `code` of `CheckpointState.abort`
    SESSION_LAPSED = "session_lapsed"
    RANKS_MISSING = "ranks_missing"
    OPEN_TOO_LONG = "open_too_long"
    ABORTED_BY_CLIENT = "aborted_by_client"
    COVERAGE_GAP = "coverage_gap"
    OVERLAP_CONFLICT = "overlap_conflict"
    DTYPE_DISAGREES = "dtype_disagrees"
    SHAPE_DISAGREES = "shape_disagrees"
    REPLICAS_DIVERGED = "replicas_diverged"
    SUPERSEDED = "superseded"
    # 500, 503, 507: ours
    INTERNAL = "internal"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"
    BUSY = "busy"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    STORAGE_FULL = "storage_full"
    CHUNK_DAMAGED = "chunk_damaged"


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """The HTTP status a code is answered with, and whether a client may simply try again."""

    status: int
    retryable: bool = False


_STATUS: Final[dict[int, tuple[ErrorCode, ...]]] = {
    400: (
        ErrorCode.MALFORMED_REQUEST, ErrorCode.INVALID_CURSOR, ErrorCode.BODY_LENGTH_MISMATCH,
        ErrorCode.DIGEST_MISMATCH, ErrorCode.CHECKSUM_MISMATCH, ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_CODEC,
    ),
    401: (ErrorCode.TOKEN_MISSING, ErrorCode.TOKEN_INVALID, ErrorCode.TOKEN_EXPIRED, ErrorCode.SIGN_IN_ENDED),
    403: (ErrorCode.SCOPE_TOO_NARROW, ErrorCode.QUOTA_EXCEEDED, ErrorCode.ORIGIN_REFUSED, ErrorCode.CSRF_MISSING),
    404: (
        ErrorCode.NO_SUCH_ROUTE, ErrorCode.UNKNOWN_PROJECT, ErrorCode.UNKNOWN_RUN, ErrorCode.UNKNOWN_ATTEMPT,
        ErrorCode.UNKNOWN_CHECKPOINT, ErrorCode.UNKNOWN_CHUNK, ErrorCode.UNKNOWN_MANIFEST, ErrorCode.UNKNOWN_TENSOR,
        ErrorCode.CHECKPOINT_NOT_COMMITTED, ErrorCode.UNKNOWN_TOKEN,
    ),
    405: (ErrorCode.METHOD_NOT_ALLOWED,),
    408: (ErrorCode.IDLE_TIMEOUT,),
    409: (
        ErrorCode.ATTEMPT_FENCED, ErrorCode.NO_ATTEMPT, ErrorCode.RESUME_UNDECIDED,
        ErrorCode.RESUME_DECIDED_OTHERWISE, ErrorCode.NO_USABLE_CHECKPOINT,
        ErrorCode.STEP_DISAGREES, ErrorCode.WORLD_SIZE_DISAGREES,
        ErrorCode.STEP_ALREADY_COMMITTED, ErrorCode.SAVE_CONTENT_DISAGREES, ErrorCode.INVENTORY_DISAGREES,
        ErrorCode.CHECKPOINT_ABORTED, ErrorCode.CHECKPOINT_NOT_OPEN, ErrorCode.CHUNKS_MISSING,
        ErrorCode.CHECKPOINT_PINNED, ErrorCode.SESSION_LAPSED, ErrorCode.RANKS_MISSING, ErrorCode.ABORTED_BY_CLIENT,
        ErrorCode.COVERAGE_GAP, ErrorCode.OVERLAP_CONFLICT, ErrorCode.DTYPE_DISAGREES, ErrorCode.SHAPE_DISAGREES,
        ErrorCode.REPLICAS_DIVERGED, ErrorCode.SUPERSEDED,
        ErrorCode.OPEN_TOO_LONG, ErrorCode.RUN_DELETED, ErrorCode.RUN_IN_USE, ErrorCode.NAME_TAKEN,
    ),
    411: (ErrorCode.LENGTH_REQUIRED,),
    412: (ErrorCode.VERSION_CHANGED,),
    413: (ErrorCode.BODY_TOO_LARGE,),
    416: (ErrorCode.RANGE_NOT_SATISFIABLE,),
    422: (
        ErrorCode.INVALID_NAME, ErrorCode.EMPTY_POLICY, ErrorCode.MALFORMED_MANIFEST, ErrorCode.RANK_OUT_OF_RANGE,
    ),
    428: (ErrorCode.VERSION_REQUIRED,),
    429: (ErrorCode.TOO_MANY_SIGN_INS,),
    431: (ErrorCode.HEADERS_TOO_LARGE,),
    500: (ErrorCode.INTERNAL, ErrorCode.CHUNK_DAMAGED),
    503: (ErrorCode.NOT_READY, ErrorCode.SHUTTING_DOWN, ErrorCode.BUSY, ErrorCode.STORAGE_UNAVAILABLE),
    507: (ErrorCode.STORAGE_FULL,),
}  # fmt: skip
_RETRYABLE: Final = frozenset({
    ErrorCode.IDLE_TIMEOUT, ErrorCode.INTERNAL, ErrorCode.NOT_READY, ErrorCode.SHUTTING_DOWN, ErrorCode.BUSY,
    ErrorCode.STORAGE_UNAVAILABLE, ErrorCode.BODY_LENGTH_MISMATCH, ErrorCode.DIGEST_MISMATCH,
    ErrorCode.CHECKSUM_MISMATCH, ErrorCode.TOO_MANY_SIGN_INS,
})  # fmt: skip
"""Digest and length mismatches are retryable because the bytes can be damaged on the way; attempts stay bounded."""

MEANINGS: Final[dict[ErrorCode, ErrorMeaning]] = {
    code: ErrorMeaning(status, code in _RETRYABLE) for status, codes in _STATUS.items() for code in codes
}
