"""The way in: `connect()` and the client it returns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Self

from shardkeep.connection.addresses import ALLOW_HTTP_VARIABLE, ServiceAddress, is_loopback
from shardkeep.connection.retries import RetryPolicy
from shardkeep.connection.service_client import ServiceClient
from shardkeep.connection.store_pools import ca_bundle_of
from shardkeep.connection.token_source import FILE_VARIABLE, TokenFile, TokenSource
from shardkeep.connection.transport import Transport
from shardkeep.errors import ConfigurationError, ShardkeepError
from shardkeep.protocol.local_token_file import read_local_tokens
from shardkeep.protocol.messages import ProjectInfo, RunInfo
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.run import Run
from shardkeep.uploader.settings import UploadSettings

CodecName = Literal["auto", "raw", "zstd", "planes"]


def connect(
    url: str | None = None,
    token: str | None = None,
    *,
    connections: int = 8,
    upload_workers: int = 4,
    staging_bytes: int | None = None,
    codec: CodecName = "auto",
    connect_timeout_seconds: float = 10.0,
    read_timeout_seconds: float = 60.0,
    retry_seconds: float = 120.0,
    store_ca_bundle: str | None = None,
) -> Client:
    """A client of the service at `url`, else SHARDKEEP_URL, else the one service of this machine.

    The token is `token`, else SHARDKEEP_TOKEN, else what the file SHARDKEEP_TOKEN_FILE holds (read again when the
    service refuses it, so that it may be rotated), else the one this machine's service left for its own URL.
    `retry_seconds` is how long a failing request is repeated, `staging_bytes` the memory a rank's save may hold
    (default: its shard). `store_ca_bundle`, else SHARDKEEP_STORE_CA_BUNDLE, is a PEM file of the CAs to trust for the
    object store that chunks go to directly; HTTPS_PROXY, HTTP_PROXY and NO_PROXY hold for it. Asks the service nothing
    yet.
    """
    found_url, found_token = find_service(url, token, os.environ)
    address = ServiceAddress.parse(found_url, allow_http=os.environ.get(ALLOW_HTTP_VARIABLE) == "1")
    transport = Transport(
        address,
        found_token,
        connections=connections,
        connect_timeout_seconds=connect_timeout_seconds,
        read_timeout_seconds=read_timeout_seconds,
        retry_policy=RetryPolicy(window_seconds=retry_seconds),
        store_ca_bundle=ca_bundle_of(store_ca_bundle),
    )
    settings = UploadSettings(
        staging_bytes=staging_bytes, codec=_suited_codec(codec, address), send_workers=upload_workers
    )
    return Client(ServiceClient(transport), settings)


def _suited_codec(codec: CodecName, address: ServiceAddress) -> CodecName:
    """`auto` is raw on loopback, where the upload takes the cores that encoding would: see decision 0009."""
    return "raw" if codec == "auto" and is_loopback(address.host) else codec


def find_service(url: str | None, token: str | None, environment: Mapping[str, str]) -> tuple[str, str | TokenSource]:
    """URL and token from arguments, environment and local token files, in this order."""
    url = url or environment.get("SHARDKEEP_URL")
    found = token or environment.get("SHARDKEEP_TOKEN") or _token_file(environment)
    if url and found:
        return url, found
    local = read_local_tokens()
    if url is None:
        if len(local) == 1:
            return local[0].url, found or local[0].token
        raise ConfigurationError(_no_single_service([item.url for item in local]))
    wanted = ServiceAddress.parse(url, allow_http=True)
    for item in local:
        if ServiceAddress.parse(item.url, allow_http=True) == wanted:
            return url, item.token
    raise ConfigurationError(f"There is no token for {url}: set SHARDKEEP_TOKEN (or _FILE) or give token=")


def _token_file(environment: Mapping[str, str]) -> TokenFile | None:
    path = environment.get(FILE_VARIABLE)
    return TokenFile(Path(path)) if path else None


def _no_single_service(urls: list[str]) -> str:
    if not urls:
        return "No service is known: set SHARDKEEP_URL and SHARDKEEP_TOKEN, or start one with `shardkeep-service serve`"
    return f"Several services run on this machine; set SHARDKEEP_URL to one of {', '.join(sorted(urls))}"


class Client:
    """A connection to one service. Thread-safe. Closing it, or leaving its `with`, waits for saves in flight."""

    def __init__(self, service: ServiceClient, settings: UploadSettings) -> None:
        self.service = service
        self.settings = settings
        self._runs: list[Run] = []

    @property
    def url(self) -> str:
        """The service's address."""
        return self.service.transport.address.url

    def run(self, name: str) -> Run:
        """The run called `project/run`; asks the service nothing, and the run need not exist yet."""
        project, slash, run = name.partition("/")
        if not (project and slash and run) or "/" in run:
            raise ConfigurationError(f"{name!r} is not of the form project/run")
        if not (project.strip(".") and run.strip(".")):
            raise ConfigurationError(
                f"{name!r}: a project or run cannot be called only dots, which paths take for others"
            )
        return Run(self.service, project, run, settings=self.settings, on_save=self._keep)

    def _keep(self, run: Run) -> None:
        """Remember a run that saves, so that closing waits for it."""
        if run not in self._runs:
            self._runs.append(run)

    def projects(self) -> Iterator[ProjectInfo]:
        """All projects the token may see."""
        return self.service.projects()

    def runs(self, project: str) -> Iterator[RunInfo]:
        """All runs of a project."""
        return self.service.runs(project)

    def checkpoint(self, checkpoint_id: str) -> Checkpoint:
        """A checkpoint by id, in any state; reading one that is not committed raises CheckpointNotCommitted."""
        return Checkpoint(self.service, self.service.checkpoint(checkpoint_id))

    def close(self) -> None:
        """Wait for saves in flight and drop the connections; raises a save's failure that nobody was told of."""
        failures = []
        for run in self._runs:
            try:
                run.close()
            except ShardkeepError as error:
                failures.append(error)
        self.service.close()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except ShardkeepError:
            if error is None:
                raise
