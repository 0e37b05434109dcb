"""Every error the client, the format and the protocol raise, drawn as one tree.

ShardkeepError
├── ConfigurationError          an argument, an environment variable or a layout that cannot work
├── StateError                  the training state cannot be captured or written back
│   ├── UnsupportedValue        a value that cannot be stored without executing code
│   ├── UnnamedParameter        an optimizer parameter that no module names
│   └── MissingStorage          a tensor whose memory is absent (meta device, resized to zero)
├── LoadError                   a checkpoint does not fit what it is loaded into; nothing was written
│   ├── MissingNames            asked for and not in the checkpoint, or in it and not asked for
│   ├── ShapeMismatch
│   └── DtypeMismatch
├── FormatError                 bytes that are not what the format says
│   ├── VersionTooNew           written by a newer version; nothing was read
│   └── IntegrityError          a digest, checksum or fingerprint that does not match
├── ConnectionFailed            the service or the store did not answer within the retry window
├── ServiceError                the service refused: `code`, `status`, `request_id`, `retryable`
│   ├── Unauthenticated         401
│   ├── PermissionDenied        403
│   │   └── QuotaExceeded       the project uses what it may; `extra` has `used` and `limit`
│   ├── NotFound                404
│   │   └── CheckpointNotCommitted
│   ├── Conflict                409, 412
│   │   ├── AttemptFenced       a newer attempt began; this one may never save again
│   │   └── SaveConflict        another step, world size or content under the same save
│   ├── InvalidRequest          400, 411, 413, 422
│   └── ServiceUnavailable      5xx and 429 that outlived the retry window
├── SaveFailed                  a save that did not commit, with the reason and the rank
│   └── ReplicasDiverged        replicas that must be equal are not; names tensors and ranks
└── ResumeError                 no checkpoint could be resumed; never turned into a fresh start
    ├── NoUsableCheckpoint      the run opened checkpoints and none can be used; carries the list
    └── InexactResume           `strict=True` and the resume would not be exact; carries the reasons
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ShardkeepError(Exception):
    """The root: `except ShardkeepError` catches everything this package raises on purpose."""


class ConfigurationError(ShardkeepError):
    """An argument, an environment variable or a layout that cannot work."""


class StateError(ShardkeepError):
    """The training state cannot be captured or written back."""


class UnsupportedValue(StateError):
    """A value that cannot be stored without executing code; the message gives its path."""


class UnnamedParameter(StateError):
    """An optimizer parameter that no module names."""


class MissingStorage(StateError):
    """A tensor whose memory is absent: on the meta device, or resized to zero."""


class LoadError(ShardkeepError):
    """A checkpoint does not fit what it is loaded into; nothing was written. `names`: all tensors it is about."""

    def __init__(self, message: str, *, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class MissingNames(LoadError):
    """Names that one side has and the other does not.

    `missing`: asked for and not in the checkpoint. `unexpected`: in the checkpoint, under the names asked for, and
    not asked for.
    """

    def __init__(self, message: str, *, missing: Sequence[str] = (), unexpected: Sequence[str] = ()) -> None:
        super().__init__(message, names=(*missing, *unexpected))
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)


class ShapeMismatch(LoadError):
    """A stored tensor and its destination have different global shapes."""


class DtypeMismatch(LoadError):
    """A stored tensor and its destination have different dtypes and `cast=True` was not given."""


class FormatError(ShardkeepError):
    """Bytes that are not what the format says."""


class VersionTooNew(FormatError):
    """Written by a newer version of the format; nothing was read."""


class IntegrityError(FormatError):
    """A digest, checksum or fingerprint that does not match its bytes."""


class ConnectionFailed(ShardkeepError):
    """The service or the object store did not answer within the retry window."""


class ServiceError(ShardkeepError):
    """The service refused a request.

    `code` is stable (see `shardkeep.protocol.error_codes`), `extra` holds the further members of the problem
    document.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int,
        request_id: str | None = None,
        retryable: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.request_id = request_id
        self.retryable = retryable
        self.extra: Mapping[str, Any] = dict(extra or {})


class Unauthenticated(ServiceError):
    """No token, or one that is unknown, expired or revoked."""


class PermissionDenied(ServiceError):
    """The token's scope or project does not allow this."""


class QuotaExceeded(PermissionDenied):
    """The project uses what its quota allows: `extra` has `used` and `limit`. Free some, or ask for more."""


class NotFound(ServiceError):
    """No such project, run, attempt, checkpoint, tensor or chunk."""


class CheckpointNotCommitted(NotFound):
    """The checkpoint exists and cannot be read: it is open, aborted, deleted or quarantined."""


class Conflict(ServiceError):
    """The request contradicts what the service holds."""


class AttemptFenced(Conflict):
    """A newer attempt of the run began; this one may never commit, overwrite or delete again."""


class SaveConflict(Conflict):
    """Another step, world size, layout or content under a save that already exists."""


class InvalidRequest(ServiceError):
    """Malformed input, a broken limit or a body that does not match what was declared."""


class ServiceUnavailable(ServiceError):
    """The service answered that it cannot serve this now, for longer than the retry window."""


class SaveFailed(ShardkeepError):
    """A save that did not commit: `step`, and what the service gave of `code`, `rank`, `ranks` and `tensors`."""

    def __init__(
        self,
        message: str,
        *,
        step: int | None = None,
        code: str | None = None,
        rank: int | None = None,
        ranks: Sequence[int] = (),
        tensors: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.step = step
        self.code = code
        self.rank = rank
        self.ranks = tuple(ranks)
        self.tensors = tuple(tensors)


class ReplicasDiverged(SaveFailed):
    """Replicas of parameters or optimizer state that must be equal are not."""


class ResumeError(ShardkeepError):
    """No checkpoint could be resumed. Never turned into a fresh start."""


class NoUsableCheckpoint(ResumeError):
    """The run opened checkpoints and none can be used. `passed_over` gives each with its reason."""

    def __init__(self, message: str, *, passed_over: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.passed_over = tuple(passed_over)


class InexactResume(ResumeError):
    """`strict=True` and the resume would not be exact. `reasons` lists each difference."""

    def __init__(self, message: str, *, reasons: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.reasons = tuple(reasons)
