"""The memory of a service to which many connections are open: none of them keeps the buffer of its last body."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from bench.processes import peak_bytes, resident_bytes
from shardkeep.protocol import routes
from tests.integration.service.process_client import chunk_path, open_checkpoint, payload
from tests.service_process import REAL_COMMAND, ServiceProcess

MEBIBYTE = 1 << 20
BUDGET_BYTES = 64 * MEBIBYTE
BODY_BYTES = 8 * MEBIBYTE
AT_ONCE = BUDGET_BYTES // BODY_BYTES
CONNECTIONS = 6 * AT_ONCE
BESIDE_BYTES = 32 * MEBIBYTE
"""What requests need beside their bodies. Buffers that connections keep would be five times that."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    env = {"SHARDKEEP_SERVICE_UPLOAD_BUDGET_BYTES": str(BUDGET_BYTES)}
    with ServiceProcess(tmp_path / "service", env=env, program=REAL_COMMAND) as one:
        yield one


def send(service: ServiceProcess, checkpoint: str, connection: http.client.HTTPConnection) -> int:
    """One new chunk over a connection that stays open; the status."""
    chunk = payload(BODY_BYTES)
    headers = {
        "authorization": f"Bearer {service.token}",
        routes.CRC64_HEADER: f"{chunk.ref.crc64:016x}",
        "content-length": str(BODY_BYTES),
    }
    connection.request("PUT", chunk_path(checkpoint, chunk.digest), body=chunk.data, headers=headers)
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


def test_connections_that_stay_open_keep_no_buffer_beyond_the_budget(service: ServiceProcess) -> None:
    checkpoint = open_checkpoint(service)
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)))
            for _ in range(CONNECTIONS)
        ]
        before = resident_bytes(service.pid)
        statuses: list[int] = []
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for first in range(0, CONNECTIONS, AT_ONCE):  # all end before the next begin, so that buffers lie idle
                together = connections[first : first + AT_ONCE]
                statuses += threads.map(lambda connection: send(service, checkpoint, connection), together)
        grown = peak_bytes(service.pid) - before

    assert statuses == [201] * CONNECTIONS
    assert grown < BUDGET_BYTES + BESIDE_BYTES, f"{grown / MEBIBYTE:.0f} MiB over a budget of 64"
