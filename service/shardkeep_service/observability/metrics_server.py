"""Metrics of a process that serves nothing else (the worker): /metrics on its own port, guarded as in the service."""

from __future__ import annotations

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from shardkeep.protocol import routes
from shardkeep_service.access.bearer import bearer_token
from shardkeep_service.access.gate import Gate
from shardkeep_service.access.metrics_access import check_may_read
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.errors import Refusal
from shardkeep_service.observability.metrics import CONTENT_TYPE
from shardkeep_service.service_context import ServiceContext

_REQUEST_SECONDS: Final = 10.0


class MetricsServer:
    """Serves until it is closed. OSError when the port is taken."""

    def __init__(self, context: ServiceContext, *, host: str, port: int) -> None:
        gate = Gate(context.database)

        class Handler(_Handler):
            def may_read(self) -> None:
                _check(context, gate, self.headers.get("authorization"))

            def text(self) -> bytes:
                return context.metrics.text()

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def close(self) -> None:
        """Answers what it began and ends."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _check(context: ServiceContext, gate: Gate, authorization: str | None) -> None:
    if context.settings.metrics_public:
        return
    text = bearer_token(authorization)
    check_may_read(gate.remembered(text) or gate.recognise(text))


class _Handler(BaseHTTPRequestHandler):
    """One request; `may_read` and `text` are given by the server."""

    timeout = _REQUEST_SECONDS
    server_version = "shardkeep"
    sys_version = ""

    def may_read(self) -> None:
        raise NotImplementedError

    def text(self) -> bytes:
        raise NotImplementedError

    def do_GET(self) -> None:
        """Metrics, or the status that says why not."""
        if self.path.partition("?")[0] != routes.METRICS:
            self._answer(HTTPStatus.NOT_FOUND, b"only /metrics is here\n")
            return
        try:
            self.may_read()
        except Refusal as refusal:
            self._answer(HTTPStatus(refusal.status), f"{refusal.code}: {refusal.detail}\n".encode())
        except DatabaseFailed:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"the database does not answer\n")
        else:
            self._answer(HTTPStatus.OK, self.text(), CONTENT_TYPE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes are not logged."""

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("www-authenticate", 'Bearer realm="shardkeep"')
        self.end_headers()
        self.wfile.write(body)
