"""What every request carries, and what is never sent."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator

import pytest
import urllib3

from shardkeep.connection.addresses import ServiceAddress
from shardkeep.connection.cuttable_pools import CuttablePools
from shardkeep.connection.retries import RetryPolicy
from shardkeep.connection.service_client import ServiceClient
from shardkeep.connection.transport import HttpRequest, Transport
from shardkeep.errors import ConnectionFailed, FormatError, ServiceError


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})  # type: ignore[attr-defined]
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("location", "http://127.0.0.1:1/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        body = b'{"hello": 1}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    made.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def transport(server: http.server.ThreadingHTTPServer) -> Iterator[Transport]:
    address = ServiceAddress.parse(f"http://127.0.0.1:{server.server_address[1]}")
    made = Transport(address, "shardkeep_secret", retry_policy=RetryPolicy(window_seconds=0.2))
    yield made
    made.close()


def test_requests_carry_the_token_and_an_id(transport: Transport, server: http.server.ThreadingHTTPServer) -> None:
    transport.call(HttpRequest("GET", "/x"))
    transport.call(HttpRequest("GET", "/x"))
    first, second = server.seen  # type: ignore[attr-defined]
    assert first["authorization"] == "Bearer shardkeep_secret"
    assert first["accept-encoding"] == "identity"
    assert first["x-request-id"] != second["x-request-id"]


def test_redirects_are_not_followed(transport: Transport) -> None:
    with pytest.raises(ServiceError, match="redirects are not followed") as caught:
        transport.call(HttpRequest("GET", "/redirect"))
    assert caught.value.code == "http_302"


def test_an_answer_of_something_else_is_a_clear_error(transport: Transport) -> None:
    with pytest.raises(FormatError, match="is this a Shardkeep service"):
        ServiceClient(transport).capabilities()


def test_the_token_and_presigned_queries_are_in_no_message(transport: Transport) -> None:
    transport.address = ServiceAddress.parse("http://127.0.0.1:9")
    for url in ("/v1/x?cursor=secret", "http://127.0.0.1:9/key?X-Amz-Signature=secret"):
        with pytest.raises(ConnectionFailed) as caught:
            transport.call(HttpRequest("GET", url))
        assert "secret" not in str(caught.value)


def test_a_closed_client_says_so(transport: Transport) -> None:
    transport.close()
    with pytest.raises(ConnectionFailed, match="closed"):
        transport.call(HttpRequest("GET", "/x"))


def test_cutting_ends_a_request_that_waits_for_its_answer_and_refuses_later_ones() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made = Transport(ServiceAddress.parse(f"http://127.0.0.1:{silent.getsockname()[1]}"), "shardkeep_secret")
        apart = made.apart(policy=RetryPolicy(window_seconds=0.0))
        ended: list[ConnectionFailed] = []

        def wait() -> None:
            with pytest.raises(ConnectionFailed) as caught:
                apart.call(HttpRequest("GET", "/x", read_timeout_seconds=300))
            ended.append(caught.value)

        thread = threading.Thread(target=wait)
        thread.start()
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1000)
            apart.cut()
            thread.join(60)
            assert len(ended) == 1
        with pytest.raises(ConnectionFailed, match="closed"):
            apart.call(HttpRequest("GET", "/x"))
        assert not made.is_closed


def test_cutting_also_ends_a_connection_that_is_made_meanwhile() -> None:
    pools = CuttablePools(num_pools=1, maxsize=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pools.cut()
        with pytest.raises(urllib3.exceptions.ProtocolError):
            pools.request("GET", f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=60)
    pools.clear()
