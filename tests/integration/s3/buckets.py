"""One bucket for the tests of a module, and stores that keep their objects in it or in one of their own."""

from __future__ import annotations

import secrets
from typing import Any

from pydantic import SecretStr

from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.s3.connection import S3Connection
from shardkeep_service.blob_store.s3.opening import S3Parts, open_s3
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.blob_store.s3.store import S3BlobStore
from shardkeep_service.blob_store.s3.store_clock import StoreClock
from tests.servers.seaweedfs import S3Server


class Buckets:
    """A bucket of `server`, and what one probe found of it."""

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.bucket = server.new_bucket()
        self._abilities: StoreAbilities | None = None

    @property
    def abilities(self) -> StoreAbilities:
        """What the server does; probed once."""
        if self._abilities is None:
            self._abilities = self.open().abilities()
        return self._abilities

    def settings(self, **changed: Any) -> S3Settings:
        """The settings of a store in this bucket."""
        known: dict[str, Any] = {
            "bucket": self.bucket,
            "endpoint_url": self.server.endpoint_url,
            "region": self.server.region,
            "addressing_style": "path",
            "access_key_id": self.server.access_key,
            "secret_access_key": SecretStr(self.server.secret_key),
        }
        return S3Settings(**{**known, **changed})

    def open(self, *, clock: StoreClock | None = None, **changed: Any) -> S3Parts:
        """A store with its presigner, which has probed nothing yet."""
        return open_s3(self.settings(**changed), storage_threads=8, clock=clock)

    def new_store(self, **changed: Any) -> S3BlobStore:
        """A store with nothing in it, under a prefix of its own if no other is given; what it can do is known."""
        settings = self.settings(**{"prefix": f"t{secrets.token_hex(6)}", **changed})
        return S3BlobStore(S3Connection(settings, connections=8), lambda: self.abilities)

    def objects(self) -> dict[str, int]:
        """All keys in the bucket, prefixes included, with their sizes."""
        return self.server.objects(self.bucket)
