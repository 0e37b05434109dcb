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


class BlobStoreUnavailable(BlobStoreError):
    """The store did not answer or failed in a way that may pass by itself."""
