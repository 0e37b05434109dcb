"""The memory of a service that takes many large uploads at once: bounded by its budget, whatever the store."""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardkeep.format.chunks import chunk_ref
from shardkeep.protocol import routes
from tests.integration.service.process_client import Payload, ProcessClient, RawAnswer, open_checkpoint, put_chunk
from tests.servers.seaweedfs import S3Server
from tests.service_process import REAL_COMMAND, ServiceProcess

MEBIBYTE = 1 << 20
BUDGET = 64 * MEBIBYTE
BODY = 32 * MEBIBYTE
UPLOADS = 16
BESIDE = 96 * MEBIBYTE
"""What uploads may take beside the bodies: connections, the store's client, the database, fragmentation."""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["files", "s3"])
def test_E178_sixteen_large_uploads_at_once_take_no_more_than_the_budget_and_are_all_stored(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    env = {
        "SHARDKEEP_SERVICE_UPLOAD_BUDGET_BYTES": str(BUDGET),
        "SHARDKEEP_SERVICE_UPLOAD_WAIT_SECONDS": "0.2",
        "SHARDKEEP_SERVICE_DIRECT": "never",
    }
    if store == "s3":
        server: S3Server = request.getfixturevalue("seaweedfs")
        env |= server.environment(server.new_bucket())
    noise = os.urandom(BODY - 1)
    with ServiceProcess(tmp_path / "s", env=env, program=REAL_COMMAND) as service:
        checkpoint = open_checkpoint(service)
        assert put(service, checkpoint, 255, noise).status == 201
        before = memory(service, "VmRSS")
        told: Counter[str] = Counter()

        def upload(number: int) -> None:
            until = time.monotonic() + 240
            while (answer := put(service, checkpoint, number, noise)).status != 201:
                problem = answer.problem()
                assert (answer.status, problem["code"], problem["retryable"]) == (503, "busy", True)
                assert int(answer.headers["retry-after"]) >= 1
                assert problem["retry_after_seconds"] >= 1
                told["busy"] += 1
                assert time.monotonic() < until
                time.sleep(0.2)

        with ThreadPoolExecutor(UPLOADS) as pool:
            list(pool.map(upload, range(UPLOADS)))

        assert memory(service, "VmHWM") - before < BUDGET + BESIDE
        assert told["busy"] > 0
        refs = [variant(number, noise).ref for number in range(UPLOADS)]
        offers = [{"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64} for ref in refs]
        path = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
        answers = ProcessClient(service).ask("POST", path, {"rank": 0, "chunks": offers})["chunks"]
        assert all(answer["present"] for answer in answers)


def variant(number: int, noise: bytes) -> Payload:
    """The name of a body that `put` sends; the bytes are not joined, for sixteen of them take half a gigabyte."""
    return Payload(b"", chunk_ref([bytes([number]), noise]))


def put(service: ServiceProcess, checkpoint: str, number: int, noise: bytes) -> RawAnswer:
    body = [bytes([number]), noise]
    headers = {"content-length": str(len(noise) + 1)}
    return put_chunk(service, checkpoint, variant(number, noise), body=body, headers=headers)


def memory(service: ServiceProcess, name: str) -> int:
    """A figure of /proc/<pid>/status in bytes."""
    status = Path(f"/proc/{service.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
