"""One run of the command line: its global options, its output, and the connections it opens."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from shardkeep.cli.output import Output
from shardkeep.connection.access_client import AccessClient
from shardkeep.connection.keeping_client import KeepingClient
from shardkeep.connection.request_client import RequestClient
from shardkeep.connection.service_client import ServiceClient
from shardkeep.store.connect import Client, connect

QUESTION_RETRY_SECONDS = 10.0
"""How long a question is repeated before the command says that the service does not answer."""
TRANSFER_RETRY_SECONDS = 120.0
"""How long a transfer that already began goes on trying: outlives a restart of the service."""

STAGING_BYTES = 512 << 20
"""The memory a push holds at a time."""


@dataclass(slots=True)
class Invocation:
    """What every command gets. Connections are opened when first used and closed at the end."""

    output: Output
    url: str | None = None
    token: str | None = None
    _closing: ExitStack = field(default_factory=ExitStack)
    _client: Client | None = None

    @property
    def service(self) -> ServiceClient:
        """The service, for questions."""
        if self._client is None:
            self._client = self._closing.enter_context(
                connect(self.url, self.token, retry_seconds=QUESTION_RETRY_SECONDS)
            )
        return self._client.service

    @property
    def access(self) -> AccessClient:
        """The service, for what administrators ask; over the same connections."""
        return AccessClient(self.service.transport)

    @property
    def keeping(self) -> KeepingClient:
        """The service, for what is kept and let go; over the same connections."""
        return KeepingClient(self.service.transport)

    @property
    def requests(self) -> RequestClient:
        """The service, for what a job that trains is asked to do; over the same connections."""
        return RequestClient(self.service.transport)

    def transfer_client(self, *, retry_seconds: float = TRANSFER_RETRY_SECONDS) -> Client:
        """A client for moving bytes, which waits longer for a service that comes back."""
        client = connect(self.url, self.token, staging_bytes=STAGING_BYTES, retry_seconds=retry_seconds)
        return self._closing.enter_context(client)

    def close(self) -> None:
        """Close what was opened."""
        self._closing.close()


def installed_version() -> str:
    """The version of this distribution."""
    try:
        return version("shardkeep")
    except PackageNotFoundError:
        return "unknown"
