"""An orderly end: running requests finish, new work is refused with a time to come back, and the exit code is 0."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from shardkeep.protocol import routes
from tests.integration.service.process_client import (
    ProcessClient,
    RawAnswer,
    exchange,
    gauge,
    held_bytes,
    is_stored,
    open_checkpoint,
    payload,
    put_chunk,
    read_answer,
    started_upload,
)
from tests.service_process import ServiceProcess
from tests.unit.service.training import Training
from tests.waiting import wait_until
from tests.warm_process import run_program

MEBIBYTE = 1 << 20
POLL_SECONDS = 25


def wait_until_draining(service: ServiceProcess) -> None:
    wait_until(lambda: '"draining"' in service.log)


def requests_in_progress(service: ServiceProcess) -> float:
    """The one that asks too."""
    return gauge(service, "shardkeep_http_requests_in_progress")


def test_a_running_upload_finishes_while_new_work_is_refused(service: ServiceProcess) -> None:
    training = Training(ProcessClient(service))
    attempt = training.start(1, fresh=True)
    checkpoint = training.open_all(attempt, save=1, step=1, world_size=1)
    chunk, next_chunk = payload(2 * MEBIBYTE), payload(100)
    with started_upload(service, checkpoint, chunk, sent_bytes=MEBIBYTE) as connection:
        wait_until(lambda: held_bytes(service))
        service.send_signal(signal.SIGTERM)
        wait_until_draining(service)
        readiness = exchange(service, "GET", "/readyz")
        assert (readiness.status, readiness.problem()["code"]) == (503, "shutting_down")
        assert exchange(service, "GET", "/livez").status == 200
        path = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt)
        body = b'{"save": 2, "step": 2, "rank": 0, "world_size": 1}'
        refused = exchange(service, "POST", path, body=body, headers={"content-type": "application/json"})
        assert refused.problem()["code"] == "shutting_down"
        assert int(refused.headers["retry-after"]) >= 1
        assert put_chunk(service, checkpoint, next_chunk).status == 201
        connection.sendall(chunk.data[MEBIBYTE:])
        assert read_answer(connection).status == 201
    assert service.wait_exit() == 0
    service.start()
    assert is_stored(service, checkpoint, chunk)
    assert is_stored(service, checkpoint, next_chunk)


def test_a_long_poll_is_answered_at_once_when_the_service_stops(service: ServiceProcess) -> None:
    checkpoint = open_checkpoint(service)
    answers: list[RawAnswer] = []
    path = routes.path(routes.STATE, checkpoint=checkpoint) + f"?known=open&arrived=0&wait_seconds={POLL_SECONDS}"
    poll = threading.Thread(target=lambda: answers.append(exchange(service, "GET", path)))
    before = requests_in_progress(service)
    poll.start()
    wait_until(lambda: requests_in_progress(service) > before)
    assert not answers
    began = time.monotonic()
    service.send_signal(signal.SIGTERM)
    assert service.wait_exit() == 0
    poll.join(POLL_SECONDS)
    assert time.monotonic() - began < POLL_SECONDS
    assert answers[0].problem()["code"] == "shutting_down"
    assert answers[0].problem()["retryable"]


def test_an_upload_that_takes_too_long_is_cut_after_the_grace(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "s", env={"SHARDKEEP_SERVICE_SHUTDOWN_SECONDS": "0.5"}) as service:
        checkpoint, chunk = open_checkpoint(service), payload(2 * MEBIBYTE)
        with started_upload(service, checkpoint, chunk, sent_bytes=MEBIBYTE):
            wait_until(lambda: held_bytes(service))
            service.send_signal(signal.SIGTERM)
            assert service.wait_exit() == 0
        service.start()
        assert not is_stored(service, checkpoint, chunk)


def test_a_second_service_on_the_directory_is_refused_and_names_the_first(service: ServiceProcess) -> None:
    second = serve(service.data_dir, service.home)
    assert second.returncode == 1
    assert f"pid {service.pid}" in second.stderr
    assert service.is_ready()


def test_a_taken_port_is_a_clear_refusal(service: ServiceProcess, tmp_path: Path) -> None:
    second = serve(tmp_path / "other", service.home, port=service.port)
    assert second.returncode == 1
    assert f"port {service.port}" in second.stderr


def test_a_kill_leaves_a_directory_that_starts_again(service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(service), payload(1000)
    assert put_chunk(service, checkpoint, chunk).status == 201
    incoming = service.data_dir / "blobs" / "incoming"
    (incoming / "halfwritten").write_bytes(b"x")
    token = service.token
    service.kill()
    service.start()
    assert service.token == token
    assert is_stored(service, checkpoint, chunk)
    assert not (incoming / "halfwritten").exists()
    wait_until(lambda: not list(incoming.iterdir()))  # readiness tries the store by writing there


def test_a_malformed_fault_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not a fault"):
        ServiceProcess(tmp_path / "s", env={"SHARDKEEP_SERVICE_FAULT": "kill everything"}).start()


def serve(data_dir: Path, home: Path, *, port: int = 0) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SHARDKEEP_HOME": str(home)}
    return run_program("shardkeep-service", "serve", "--data", str(data_dir), "--port", str(port), env=env)
