"""One request at a time over pooled connections: token, request id, retries, errors. What routes mean is not here."""

from __future__ import annotations

import contextlib
import http.client
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import urllib3

from shardkeep.connection.addresses import ServiceAddress
from shardkeep.connection.bodies import PartsBody
from shardkeep.connection.cuttable_pools import CuttablePools
from shardkeep.connection.problems import (
    error_from_answer,
    error_from_exception,
    error_from_store,
    retry_after_seconds,
)
from shardkeep.connection.redaction import redact_urllib3_logs
from shardkeep.connection.retries import Retries, RetryPolicy
from shardkeep.connection.store_pools import StorePools
from shardkeep.connection.token_source import TokenSource
from shardkeep.connection.trace_context import Trace
from shardkeep.errors import ConnectionFailed, ShardkeepError
from shardkeep.protocol.routes import REQUEST_ID_HEADER, TRACE_HEADER

_log = logging.getLogger("shardkeep.connection")
_UNAUTHORIZED: Final = 401
PROBLEM_BYTES_LIMIT: Final = 64 * 1024 * 1024
"""The longest explanation read from a refused request."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What to send. `url` is a path on the service or an absolute URL elsewhere, which never gets the token."""

    method: str
    url: str
    body: bytes | PartsBody | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    read_timeout_seconds: float | None = None

    @property
    def name(self) -> str:
        """Method and path for messages; the query is left out, since presigned ones are secrets."""
        return f"{self.method} {self.url.partition('?')[0]}"

    @property
    def on_service(self) -> bool:
        """Whether it goes to the service, and not to an object store."""
        return self.url.startswith("/")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole 2xx answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Refusal(Exception):
    """One try that failed: the error it stands for, and how long the answer asked to wait."""

    def __init__(self, error: ShardkeepError, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


class Transport:
    """Keep-alive connections to the service and to object stores. Thread-safe; one per client."""

    def __init__(
        self,
        address: ServiceAddress,
        token: str | TokenSource,
        *,
        connections: int = 8,
        connect_timeout_seconds: float = 10.0,
        read_timeout_seconds: float = 60.0,
        retry_policy: RetryPolicy | None = None,
        user_agent: str = "shardkeep",
        store_ca_bundle: str | None = None,
    ) -> None:
        self.address = address
        self.connections = connections
        self._tokens = TokenSource(token) if isinstance(token, str) else token
        self._timeouts = (connect_timeout_seconds, read_timeout_seconds)
        self._policy = retry_policy or RetryPolicy()
        self._user_agent = user_agent
        self._trace = Trace()
        self._closed = threading.Event()
        # Threads of the pipeline, its beats and its long poll overlap; a spare socket is cheaper than a reconnect.
        self._pools = CuttablePools(num_pools=16, maxsize=connections + 4)
        self._store_pools = StorePools(connections=connections + 4, ca_bundle=store_ca_bundle)
        redact_urllib3_logs()

    @property
    def policy(self) -> RetryPolicy:
        """How long a request is repeated unless it says otherwise."""
        return self._policy

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """Drop the connections and end waiting retries with ConnectionFailed."""
        self._closed.set()
        self._pools.clear()
        self._store_pools.clear()

    def cut(self) -> None:
        """`close`, and end requests to the service that are under way with ConnectionFailed, whatever they wait for."""
        self.close()
        self._pools.cut()

    def apart(self, *, policy: RetryPolicy) -> Transport:
        """Another transport to the same service with the same token, for requests that wait for long."""
        connect_seconds, read_seconds = self._timeouts
        return Transport(
            self.address,
            self._tokens,
            connections=1,
            connect_timeout_seconds=connect_seconds,
            read_timeout_seconds=read_seconds,
            retry_policy=policy,
            user_agent=self._user_agent,
        )

    def retries(self, policy: RetryPolicy | None = None, stop: threading.Event | None = None) -> Retries:
        """A fresh count of failures for one request."""
        return Retries(policy or self._policy, closed=self._closed, stop=stop)

    def call(
        self, request: HttpRequest, *, policy: RetryPolicy | None = None, stop: threading.Event | None = None
    ) -> HttpAnswer:
        """Send until answered 2xx; any other end is an error of `shardkeep.errors`. `stop` ends retrying."""
        retries = self.retries(policy, stop)
        request_id = secrets.token_hex(8)
        while True:
            try:
                with self.exchange(request, request_id=f"{request_id}.{retries.tries}") as response:
                    return HttpAnswer(response.status, _lowered(response), response.read())
            except Refusal as refusal:
                refused = refusal
            retries.pause_after(refused.error, retry_after_seconds=refused.retry_after)

    @contextlib.contextmanager
    def exchange(self, request: HttpRequest, *, request_id: str) -> Iterator[urllib3.BaseHTTPResponse]:
        """One try: the answer, 2xx or 416, with its body unread; anything else raises Refusal.

        The connection goes back to the pool only if the body was read to its end.
        """
        try:
            token = self._tokens.text
            response = self._send(request, request_id, token)
            if response.status == _UNAUTHORIZED and request.on_service and self._tokens.renew(token):
                _give_back(response)
                response = self._send(request, request_id, self._tokens.text)
            try:
                if not (200 <= response.status < 300 or response.status == 416):
                    raise _refusal(response, request)
                yield response
            finally:
                _give_back(response)
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as exc:
            error = error_from_exception(exc, request=request.name)
            error.__cause__ = exc
            raise Refusal(error) from exc

    def _send(self, request: HttpRequest, request_id: str, token: str) -> urllib3.BaseHTTPResponse:
        if self._closed.is_set():
            raise ConnectionFailed("The client is closed; connect again with shardkeep.connect()")
        url, on_service = self.address.resolve(request.url)
        connect_seconds, read_seconds = self._timeouts
        _log.debug("%s %s", request.name, request_id)
        pools = self._pools if on_service else self._store_pools.manager_for(url)
        return pools.request(
            request.method,
            url,
            body=request.body,  # type: ignore[arg-type]  # urllib3 sends any buffers, its stubs say bytes
            headers=self._headers(request, request_id, token if on_service else None),
            timeout=urllib3.Timeout(connect=connect_seconds, read=request.read_timeout_seconds or read_seconds),
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
        )

    def _headers(self, request: HttpRequest, request_id: str, token: str | None) -> dict[str, str]:
        """What is sent; without a token it goes to an object store, which learns nothing of ours."""
        headers = {"accept-encoding": "identity", "user-agent": self._user_agent, **request.headers}
        if token is not None:
            headers[REQUEST_ID_HEADER] = request_id
            headers[TRACE_HEADER] = self._trace.header()
            headers["authorization"] = f"Bearer {token}"
        if isinstance(request.body, PartsBody):
            headers["content-length"] = str(request.body.size_bytes)
        return headers


def _lowered(response: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _refusal(response: urllib3.BaseHTTPResponse, request: HttpRequest) -> Refusal:
    body, headers = response.read(PROBLEM_BYTES_LIMIT), _lowered(response)
    error: ShardkeepError
    if request.on_service:
        error = error_from_answer(response.status, headers, body, request=request.name)
    else:
        error = error_from_store(response.status, body, request=request.name)
    return Refusal(error, retry_after_seconds(headers, body))


def _give_back(response: urllib3.BaseHTTPResponse) -> None:
    if not response.closed:
        response.close()
    response.release_conn()
