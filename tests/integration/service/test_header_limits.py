"""Headers that trickle in, never end, or never come: each connection is given up in time, and others are served."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.integration.service.process_client import open_checkpoint, payload, put_chunk, read_answer, started_upload
from tests.service_process import ServiceProcess

HEADER_SECONDS = 4.0
PATIENCE_SECONDS = 50.0


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that waits a few seconds for headers."""
    settings = {"SHARDKEEP_SERVICE_HEADER_TIMEOUT_SECONDS": str(HEADER_SECONDS)}
    with ServiceProcess(tmp_path_factory.mktemp("hasty") / "service", env=settings) as service:
        yield service


@contextmanager
def connected(service: ServiceProcess) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_SECONDS) as connection:
        yield connection


def livez(connection: socket.socket) -> int:
    connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    return read_answer(connection, "GET").status


def test_headers_that_never_end_are_answered_408_and_the_connection_is_closed(hasty: ServiceProcess) -> None:
    with connected(hasty) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ")
        began = time.monotonic()
        answer = read_answer(connection, "GET")
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert answer.headers["content-type"] == "application/problem+json"
        assert b'"idle_timeout"' in answer.body
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        assert connection.recv(1) == b""


def test_headers_that_trickle_in_get_no_more_time_for_each_byte(hasty: ServiceProcess) -> None:
    with connected(hasty) as connection:
        began = time.monotonic()
        connection.settimeout(HEADER_SECONDS / 10)
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ")
        got = b""
        while not got and time.monotonic() - began < PATIENCE_SECONDS:
            try:
                got = connection.recv(4096)
            except TimeoutError:
                with suppress(ConnectionError):  # it may have been given up meanwhile; its answer can be read
                    connection.sendall(b"a")
        assert got.startswith(b"HTTP/1.1 408 ")


def test_a_connection_on_which_nothing_comes_is_closed_without_an_answer(hasty: ServiceProcess) -> None:
    with connected(hasty) as connection:
        assert connection.recv(1) == b""


def test_an_idle_connection_is_kept_between_requests_but_a_half_request_on_it_is_not(hasty: ServiceProcess) -> None:
    with connected(hasty) as connection:
        assert livez(connection) == 200
        time.sleep(HEADER_SECONDS + 1)
        assert livez(connection) == 200
        connection.sendall(b"GET /livez HT")
        assert read_answer(connection, "GET").status == 408


def test_a_half_request_after_an_upload_on_the_same_connection_is_given_up_too(hasty: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(hasty), payload(1 << 20)
    with started_upload(hasty, checkpoint, chunk, sent_bytes=1000) as connection:
        connection.sendall(chunk.data[1000:])
        assert read_answer(connection).status == 201
        assert livez(connection) == 200
        connection.sendall(b"GET ")
        assert read_answer(connection, "GET").status == 408


def test_an_upload_that_takes_longer_than_headers_may_is_not_disturbed(hasty: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(hasty, run="slow"), payload(100_000)
    with started_upload(hasty, checkpoint, chunk, sent_bytes=10) as connection:
        time.sleep(HEADER_SECONDS + 1)
        connection.sendall(chunk.data[10:])
        assert read_answer(connection).status == 201


@pytest.mark.parametrize("head", [b"GET /livez HTTP/1.1\r\n", b"GET /livez?"])
def test_endless_headers_are_refused_before_they_fill_the_memory(hasty: ServiceProcess, head: bytes) -> None:
    with connected(hasty) as connection:
        connection.sendall(head)
        line = b"x-filler: " + b"a" * 8000 + b"\r\n" if head.endswith(b"\r\n") else b"a" * 8000
        sent = 0
        try:
            while sent < 16 << 20:
                connection.sendall(line)
                sent += len(line)
        except ConnectionError:
            pass
        assert sent < 16 << 20


def test_headers_of_a_usual_size_pass(hasty: ServiceProcess) -> None:
    with connected(hasty) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-filler: " + b"a" * 16_000 + b"\r\n\r\n")
        assert read_answer(connection, "GET").status == 200


def test_many_stalled_connections_keep_nobody_else_waiting(hasty: ServiceProcess) -> None:
    stalled = [socket.create_connection(("127.0.0.1", hasty.port)) for _ in range(200)]
    try:
        for connection in stalled:
            connection.sendall(b"GET /livez HTTP/1.1\r\nx: ")
        checkpoint = open_checkpoint(hasty, run="beside")
        assert put_chunk(hasty, checkpoint, payload(1000)).status == 201
    finally:
        for connection in stalled:
            connection.close()


def test_the_refusals_are_in_no_log_with_a_traceback(hasty: ServiceProcess, tmp_path: Path) -> None:
    assert tmp_path.exists()
    assert "Traceback" not in hasty.log
