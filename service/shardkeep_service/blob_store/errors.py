"""What a blob store may raise."""

from __future__ import annotations


class BlobStoreError(Exception):
    """The root of what a blob store raises on purpose."""


class BlobMissing(BlobStoreError):
    """No object, or one too short, under the key."""


class BlobExists(BlobStoreError):
    """Another object is stored under the key."""


class BlobStoreFull(BlobStoreError):
    """No space is left."""


class BlobStoreRefused(BlobStoreError):
    """The store refuses this service: an operator must change permissions, credentials or the bucket."""


class BlobStoreUnavailable(BlobStoreError):
    """The store did not answer or failed in a way that may pass by itself.

    `retry_after_seconds` is how long the store asked to be left alone, if it did; `throttled` says that it has too much
    to do, rather than a fault; `damaged` that it received other bytes than were announced.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        throttled: bool = False,
        damaged: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.throttled = throttled
        self.damaged = damaged
