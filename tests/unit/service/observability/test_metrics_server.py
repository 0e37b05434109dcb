"""The worker's own /metrics: guarded like the service's, and nothing else on its port."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shardkeep_service.access.scopes import Scope
from shardkeep_service.observability.metrics_server import MetricsServer
from tests.unit.service.local_service import LocalService


def status(server: MetricsServer, path: str, token: str = "") -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}")
    if token:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            found, body = int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            found, body = error.code, error.read()
    assert (b"shardkeep_http" in body) == (found == 200)
    return found


@pytest.fixture
def server(local: LocalService) -> Iterator[MetricsServer]:
    with closing(MetricsServer(local.context, host="127.0.0.1", port=0)) as server:
        yield server


def test_only_a_token_of_all_projects_reads_metrics(local: LocalService, server: MetricsServer) -> None:
    local.ask("POST", "/v1/projects", {"name": "mine"})
    assert status(server, "/metrics", local.new_token(Scope.METRICS)) == 200
    assert status(server, "/metrics?name[]=x", local.new_token(Scope.ADMIN)) == 200
    assert status(server, "/metrics", local.new_token(Scope.ADMIN, project="mine")) == 403
    assert status(server, "/metrics", "shardkeep_unknown") == 401
    assert status(server, "/metrics") == 401


@pytest.mark.parametrize("path", ["/", "/v1/projects", "/metrics/..", "/livez"])
def test_nothing_else_is_there(local: LocalService, server: MetricsServer, path: str) -> None:
    assert status(server, path, local.new_token(Scope.ADMIN)) == 404


def test_public_metrics_need_no_token(tmp_path: Path) -> None:
    with (
        LocalService(tmp_path / "public", metrics_public=True) as local,
        closing(MetricsServer(local.context, host="127.0.0.1", port=0)) as server,
    ):
        assert status(server, "/metrics") == 200


def test_a_port_that_is_taken_is_an_error(local: LocalService, server: MetricsServer) -> None:
    with pytest.raises(OSError, match="in use"):
        MetricsServer(local.context, host="127.0.0.1", port=server.port)
