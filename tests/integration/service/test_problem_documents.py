"""Every error is a problem document with a stable code, whoever found it: parser, router, endpoint or store."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_id
from tests.integration.service.process_client import ProcessClient, exchange, open_checkpoint, payload, put_chunk
from tests.service_process import ServiceProcess
from tests.waiting import wait_until

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "status"),
    [
        ("GET", "/nowhere", None, "no_such_route", 404),
        ("GET", "/", None, "no_such_route", 404),
        ("PATCH", routes.PROJECTS, b"{}", "method_not_allowed", 405),
        ("POST", routes.PROJECTS, b"{", "malformed_request", 400),
        ("POST", routes.PROJECTS, b"", "malformed_request", 400),
        ("POST", routes.PROJECTS, b"[1]", "malformed_request", 400),
        ("POST", routes.PROJECTS, b'{"name": "a", "nmae": "b"}', "malformed_request", 400),
        ("POST", routes.PROJECTS, b'{"name": 7}', "malformed_request", 400),
        ("POST", routes.PROJECTS, b"\xff\xfe", "malformed_request", 400),
        ("GET", "/v1/checkpoints/nonsense", None, "unknown_checkpoint", 404),
        ("GET", f"/v1/checkpoints/nonsense/chunks/{'0' * 64}", None, "unknown_checkpoint", 404),
        ("GET", f"/v1/checkpoints/ckp_{'0' * 32}/chunks/nonsense", None, "malformed_request", 400),
        ("GET", f"/v1/checkpoints/ckp_{'0' * 32}", None, "unknown_checkpoint", 404),
        ("GET", "/v1/projects/absent/runs/x", None, "unknown_project", 404),
    ],
)
def test_errors_have_one_shape(
    shared_service: ServiceProcess, method: str, path: str, body: bytes | None, code: str, status: int
) -> None:
    answer = exchange(shared_service, method, path, body=body, headers=JSON)
    problem = answer.problem()
    assert (problem["code"], answer.status) == (code, status)
    assert {"type", "title", "status", "detail", "code", "request_id", "retryable"} <= set(problem)
    assert "Traceback" not in answer.body.decode()


def test_a_malformed_request_names_the_fields(shared_service: ServiceProcess) -> None:
    path = routes.path(routes.NEGOTIATE, checkpoint=new_id("ckp"))
    problem = ProcessClient(shared_service).refused("malformed_request", "POST", path, {"rank": -1, "chunks": []})
    assert {error["field"] for error in problem["errors"]} == {"body.rank", "body.chunks"}


def test_a_method_that_a_path_does_not_take_is_told_what_it_takes(shared_service: ServiceProcess) -> None:
    assert exchange(shared_service, "DELETE", routes.CAPABILITIES).headers["allow"] == "GET"


def test_what_is_not_http_is_answered_and_closed(shared_service: ServiceProcess) -> None:
    for garbage in (
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01",
    ):
        with socket.create_connection(("127.0.0.1", shared_service.port), timeout=30) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            text = b""
            while piece := connection.recv(65536):
                text += piece
        if text:
            head, _, body = text.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 4")
            assert json.loads(body)["code"] in ("malformed_request", "no_such_route")
    assert shared_service.is_ready()


def test_a_json_body_above_the_limit_is_refused_while_it_comes(tmp_path: Path) -> None:
    env = {"SHARDKEEP_SERVICE_MAX_JSON_BYTES": "10000", "SHARDKEEP_SERVICE_IDLE_TIMEOUT_SECONDS": "4"}
    with ServiceProcess(tmp_path / "s", env=env) as service:
        large = json.dumps({"name": "x" * 20_000}).encode()
        answer = exchange(service, "POST", routes.PROJECTS, body=large, headers=JSON)
        assert (answer.problem()["code"], answer.status) == ("body_too_large", 413)
        still = exchange(service, "POST", routes.PROJECTS, body=b"{", headers={**JSON, "content-length": "9"})
        assert (still.problem()["code"], still.status) == ("idle_timeout", 408)


def test_an_unforeseen_failure_tells_the_log_everything_and_the_client_nothing(service: ServiceProcess) -> None:
    """The directory of objects turned into a file is a state no code expects."""
    checkpoint, chunk = open_checkpoint(service), payload(10)
    incoming = service.data_dir / "blobs" / "incoming"
    incoming.rmdir()
    incoming.write_bytes(b"")
    answer = put_chunk(service, checkpoint, chunk)
    problem = answer.problem()
    assert answer.status in (500, 503)
    assert str(service.data_dir) not in answer.body.decode()
    logged = log_of(service, problem["request_id"])
    assert logged["level"] == "error"
    assert "NotADirectoryError" in logged["exception"]


def log_of(service: ServiceProcess, request_id: str) -> dict[str, Any]:
    """The line of a request, which is written after its answer."""

    def whole_lines() -> list[str]:
        return [line for line in service.log.splitlines(keepends=True) if request_id in line and line.endswith("\n")]

    wait_until(whole_lines)
    found: dict[str, Any] = json.loads(whole_lines()[0])
    return found


def test_readiness_fails_when_the_store_cannot_be_written_and_says_which_check(service: ServiceProcess) -> None:
    incoming = service.data_dir / "blobs" / "incoming"
    service.stop()
    incoming.rmdir()
    service.start(wait=False)
    service.wait_ready()
    incoming.rmdir()
    wait_until(lambda: not service.is_ready())
    problem = exchange(service, "GET", "/readyz?verbose").problem()
    assert problem["checks"] == {"blob_store": "failing", "database": "ok", "draining": "ok"}
    assert exchange(service, "GET", "/livez").status == 200


def test_the_openapi_document_is_for_administrators(shared_service: ServiceProcess) -> None:
    document = ProcessClient(shared_service).ask("GET", "/v1/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert routes.NEGOTIATE in document["paths"]


def test_capabilities_name_versions_codecs_and_limits(shared_service: ServiceProcess) -> None:
    found = ProcessClient(shared_service).ask("GET", routes.CAPABILITIES)
    assert found["protocol_versions"] == [1]
    assert found["codecs"] == ["raw", "zstd", "planes"]
    assert found["uploads"] == ["streamed"]
    assert found["negotiate_limit"] == 1000
