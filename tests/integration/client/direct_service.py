"""A service whose clients reach a SeaweedFS directly, each behind a proxy that sees and can damage what passes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.planning.packing import ChunkPacker
from tests.faulty_proxy import FaultyProxy
from tests.servers.seaweedfs import S3Server
from tests.service_process import ServiceProcess

STREAMED = r"^PUT /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"
READ = r"^GET /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"
NEGOTIATE = r"^POST /v1/checkpoints/[^/]+/chunks/negotiate"
READ_TARGETS = r"^POST /v1/checkpoints/[^/]+/chunks/targets"
MANIFEST = r"^PUT /v1/checkpoints/[^/]+/manifests/"
PUT = r"^PUT /[^?]*/chunks/"
GET = r"^GET /[^?]*/chunks/"
CHUNK_BYTES = 256 << 10

State = dict[str, Any]


@dataclass
class DirectService:
    """`front` is what clients know as the service, `store` what they know as the object store."""

    process: ServiceProcess
    server: S3Server
    bucket: str
    front: FaultyProxy
    store: FaultyProxy

    def connect(self, **options: Any) -> sk.Client:
        settings = {"retry_seconds": 30.0, "codec": "raw", **options}
        return sk.connect(self.front.url, self.process.token, **settings)

    def chunk_keys(self) -> dict[str, int]:
        """The chunk objects in the bucket, with their sizes."""
        return {key: size for key, size in self.server.objects(self.bucket).items() if "/chunks/" in key}

    def delete(self, key: str) -> None:
        self.server.client.delete_object(Bucket=self.bucket, Key=key)

    def overwrite(self, key: str, data: bytes) -> None:
        self.server.client.put_object(Bucket=self.bucket, Key=key, Body=data)


@contextlib.contextmanager
def direct_service(
    server: S3Server, directory: Path, *, env: Mapping[str, str] | None = None, bucket: str | None = None
) -> Iterator[DirectService]:
    """Runs one; `env` overrides the environment of the service."""
    bucket = bucket or server.new_bucket()
    with FaultyProxy(server.port) as store:
        given = {**server.environment(bucket), "SHARDKEEP_SERVICE_S3_PUBLIC_ENDPOINT_URL": store.url, **(env or {})}
        with (
            ServiceProcess(directory / "service", env=given) as process,
            FaultyProxy(process.port) as front,
        ):
            yield DirectService(process, server, bucket, front, store)


def small_chunks(monkeypatch: pytest.MonkeyPatch, size_bytes: int = CHUNK_BYTES) -> None:
    """Makes saves of a few megabytes have many chunks."""
    defaults = ChunkPacker.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "target_bytes", size_bytes)


def noise(seed: int, size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


def many(seed: int, count: int) -> State:
    """A state of `count` chunks (see `small_chunks`), one a tensor."""
    return {f"w{number}": noise(1000 * seed + number, CHUNK_BYTES) for number in range(count)}


def assert_loads(checkpoint: sk.Checkpoint, state: State) -> None:
    target = {key: np.zeros_like(value) for key, value in state.items()}
    checkpoint.load_into(target)
    np.testing.assert_equal(target, state)
