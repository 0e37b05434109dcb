"""How object stores are reached: through the proxy of the environment, trusting the CA the user names."""

from __future__ import annotations

import http.server
import logging
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardkeep.connection.addresses import ServiceAddress
from shardkeep.connection.redaction import RedactSignedQueries
from shardkeep.connection.retries import RetryPolicy
from shardkeep.connection.store_pools import CA_BUNDLE_VARIABLE, ca_bundle_of, proxy_for
from shardkeep.connection.transport import HttpRequest, Transport
from shardkeep.errors import ConfigurationError, ConnectionFailed
from tests.faulty_proxy import FaultyProxy, Reply

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def transport(*, ca_bundle: str | None = None) -> Transport:
    return Transport(
        ServiceAddress.parse("http://127.0.0.1:1"),
        "token",
        retry_policy=RetryPolicy(window_seconds=0.5),
        store_ca_bundle=ca_bundle,
    )


def test_the_proxy_of_the_environment_is_taken_but_never_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", ".inside.example")
    assert proxy_for("https://bucket.s3.example/key") == "http://proxy:3128"
    assert proxy_for("https://store.inside.example/key") is None
    assert proxy_for("http://bucket.s3.example/key") is None
    assert proxy_for("https://127.0.0.1:9000/key") is None
    assert proxy_for("https://localhost/key") is None


def test_requests_to_the_store_go_through_the_proxy_and_those_to_the_service_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FaultyProxy(1) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://user:secret@"))
        proxy.fail("PUT", Reply(status=200, headers={}, body=b""), times=10, forwards=False)
        client = transport()
        client.call(HttpRequest("PUT", "http://store.example:9000/bucket/key?X-Amz-Signature=1", b"body"))
        [exchange] = proxy.exchanges
        assert exchange.path.startswith("http://store.example:9000/bucket/key?")
        assert exchange.headers["proxy-authorization"].startswith("Basic ")
        assert "authorization" not in exchange.headers
        with pytest.raises(ConnectionFailed):
            client.call(HttpRequest("GET", "/livez"))
        assert len(proxy.exchanges) == 1
        client.close()


CERTIFICATES: Final = Path(__file__).parents[2] / "servers" / "certificates"


class _Store(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def tls_store() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}/key"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_store_whose_certificate_is_not_trusted_is_refused_at_once_and_with_its_ca_taken(
    tls_store: str,
) -> None:
    client = transport()
    with pytest.raises(ConnectionFailed, match="TLS failed"):
        client.call(HttpRequest("GET", tls_store))
    client.close()
    trusting = transport(ca_bundle=str(CERTIFICATES / "authority.pem"))
    assert trusting.call(HttpRequest("GET", tls_store)).body == b"ok"
    trusting.close()


def test_the_ca_bundle_is_the_one_given_else_that_of_the_environment() -> None:
    assert ca_bundle_of("given.pem", {CA_BUNDLE_VARIABLE: "other.pem"}) == "given.pem"
    assert ca_bundle_of(None, {CA_BUNDLE_VARIABLE: "other.pem"}) == "other.pem"
    assert ca_bundle_of(None, {}) is None


def test_a_ca_bundle_that_is_no_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=CA_BUNDLE_VARIABLE):
        transport(ca_bundle=str(tmp_path / "nowhere.pem"))


def test_signed_queries_are_cut_from_log_records_and_others_are_not() -> None:
    arguments = ("http", "GET", "/bucket/key?X-Amz-Signature=abc&X-Amz-Date=1", "/v1/x?limit=3", 200)
    record = logging.LogRecord("urllib3", logging.DEBUG, "", 0, "%s %s %s %s %s", arguments, None)
    assert RedactSignedQueries().filter(record)
    assert record.getMessage() == "http GET /bucket/key?(signed) /v1/x?limit=3 200"
