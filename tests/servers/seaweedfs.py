"""S3 servers for tests: a real SeaweedFS from its wheel, or the one that the environment names.

`S3_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` (and `AWS_REGION`) point the tests at a server that runs
already, MinIO say; the buckets made there are removed at the end.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.service_process import free_port

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

START_SECONDS: Final = 60.0
REGION: Final = "us-east-1"
_SERVING: Final = ("Admin", "Read", "Write", "List", "Tagging")
_PORTS: Final = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc",
    "s3.port", "s3.port.grpc",
)  # fmt: skip


class S3Server:
    """An S3 server that runs, and buckets of our own in it."""

    def __init__(self, endpoint_url: str, access_key: str, secret_key: str, *, region: str = REGION) -> None:
        self.endpoint_url = endpoint_url
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = region
        self._client: S3Client | None = None
        self._buckets: list[str] = []

    @property
    def port(self) -> int:
        """Where a proxy reaches it on loopback."""
        return int(self.endpoint_url.rsplit(":", 1)[1].rstrip("/"))

    @property
    def client(self) -> S3Client:
        """A client of the server itself, for what the code under test does not do (flip a bit, count objects)."""
        if self._client is None:
            self._client = boto3.client(
                "s3",
                endpoint_url=self.endpoint_url,
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.secret_key,
                region_name=self.region,
                config=Config(
                    signature_version="s3v4",
                    s3={"addressing_style": "path"},
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
        return self._client

    def new_bucket(self) -> str:
        """The name of a new, empty bucket."""
        name = f"shardkeep-test-{secrets.token_hex(6)}"
        self.client.create_bucket(Bucket=name)
        self._buckets.append(name)
        return name

    def environment(self, bucket: str, *, prefix: str = "", endpoint_url: str | None = None) -> dict[str, str]:
        """What a service process is started with to keep its objects in `bucket`."""
        variables = {
            "BUCKET": bucket,
            "PREFIX": prefix,
            "ENDPOINT_URL": endpoint_url or self.endpoint_url,
            "REGION": self.region,
            "ADDRESSING_STYLE": "path",
            "ACCESS_KEY_ID": self.access_key,
            "SECRET_ACCESS_KEY": self.secret_key,
        }
        return {f"SHARDKEEP_SERVICE_S3_{name}": value for name, value in variables.items()}

    def objects(self, bucket: str, prefix: str = "") -> dict[str, int]:
        """Every key under `prefix` with its size."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}

    def remove_bucket(self, bucket: str) -> None:
        """Removes a bucket made here with all that is in it."""
        self._buckets.remove(bucket)
        for key in self.objects(bucket):
            self.client.delete_object(Bucket=bucket, Key=key)
        try:
            self.client.delete_bucket(Bucket=bucket)
        except ClientError as error:  # versions or locked objects stay: the server's owner sees the name
            print(f"bucket {bucket} stays: {error}", file=sys.stderr)

    def remove_buckets(self) -> None:
        """Removes all that are left."""
        for bucket in list(self._buckets):
            self.remove_bucket(bucket)


class SeaweedFS(S3Server):
    """A SeaweedFS of this process on free ports of loopback, with its data under `directory`.

    `volumes` bounds its space: so many volumes of `volume_megabytes`; None leaves it to the disk.
    """

    def __init__(self, directory: Path, *, volumes: int | None = None, volume_megabytes: int = 32) -> None:
        self._ports = {name: free_port() for name in _PORTS}
        super().__init__(f"http://127.0.0.1:{self._ports['s3.port']}", "shardkeep-test", secrets.token_hex(16))
        self._directory = directory
        self._volumes = volumes
        self._volume_megabytes = volume_megabytes
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote so far."""
        path = self._directory / "weed.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> Self:
        """Starts it and waits until it answers."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "data").mkdir(exist_ok=True)
        (self._directory / "s3.json").write_text(json.dumps(self._identities()))
        with (self._directory / "weed.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            exited = self._process.poll()
            assert exited is None, f"SeaweedFS ended with {exited}:\n{self.log[-4000:]}"
            assert time.monotonic() < until, f"SeaweedFS is not ready after {START_SECONDS} s:\n{self.log[-4000:]}"
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """Ends it at once: its data goes with it."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.kill()
        process.wait(30)
        for port in self._ports.values():  # sockets it puts beside our directory whatever it is told
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                path.unlink(missing_ok=True)
        shutil.rmtree(self._directory / "data", ignore_errors=True)

    def pause(self) -> None:
        """Stops it from answering until `resume`: connections stay open and nothing comes."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint_url}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _identities(self) -> dict[str, object]:
        credentials = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        return {"identities": [{"name": "shardkeep", "credentials": credentials, "actions": list(_SERVING)}]}

    def _command(self) -> list[str]:
        options = {
            **self._ports,
            "dir": self._directory / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": self._volume_megabytes,
            "volume.max": self._volumes or 0,
            "volume.preStopSeconds": 0,
            "filer.localSocket": self._directory / "filer.sock",
            "s3.config": self._directory / "s3.json",
            "s3.autoCreateBucket": "false",
            "s3.iam": "false",
            "s3.localSocket": self._directory / "s3.sock",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
        }
        listed = [f"-{name}={value}" for name, value in options.items()]
        program = Path(sys.executable).with_name("weed")
        return [str(program), f"-logdir={self._directory}", "server", "-filer", "-s3", *listed]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def server_of_environment() -> S3Server | None:
    """The running server that the environment names, if it names one."""
    endpoint_url = os.environ.get("S3_ENDPOINT_URL")
    if not endpoint_url:
        return None
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    assert access_key, "S3_ENDPOINT_URL needs AWS_ACCESS_KEY_ID beside it"
    assert secret_key, "S3_ENDPOINT_URL needs AWS_SECRET_ACCESS_KEY beside it"
    return S3Server(endpoint_url, access_key, secret_key, region=os.environ.get("AWS_REGION", REGION))
