"""Saves while answers are lost, the service restarts, chunks go and programs end."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import ConnectionFailed, SaveConflict, SaveFailed
from tests.faulty_proxy import DROPPED, FaultyProxy, Reply
from tests.service_process import ServiceProcess
from tests.waiting import wait_until

OPEN = r"POST /v1/attempts/[^/]+/checkpoints$"
PUT_CHUNK = r"PUT /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"
PUT_MANIFEST = r"PUT /v1/checkpoints/[^/]+/manifests/0"


def noise(seed: int, size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, np.uint8)


@pytest.fixture
def proxy(shared_service: ServiceProcess) -> Iterator[FaultyProxy]:
    with FaultyProxy(shared_service.port) as made:
        yield made


@pytest.fixture
def client(shared_service: ServiceProcess, proxy: FaultyProxy) -> Iterator[sk.Client]:
    made = sk.connect(proxy.url, shared_service.token, retry_seconds=60, codec="raw")
    yield made
    made.service.close()


@pytest.mark.parametrize(
    "pattern",
    [r"PUT /v1/projects/[^/]+/runs/", r"POST .*/attempts$", r"POST .*/resume$", OPEN, PUT_CHUNK, PUT_MANIFEST],
)
def test_E164_lost_answers_make_no_duplicates(client: sk.Client, proxy: FaultyProxy, pattern: str) -> None:
    run = client.run(f"lost-{zlib.crc32(pattern.encode())}/run")
    fault = proxy.fail(pattern, DROPPED, times=3)
    checkpoint = run.save(1, {"w": noise(1, 100_000)}).wait(60)
    assert fault.times == 0
    assert [item.id for item in run.checkpoints()] == [checkpoint.id]
    assert run.info().attempts == 1
    assert run.info().committed_checkpoints == 1


def test_E164_the_same_save_with_another_step_is_a_conflict(client: sk.Client) -> None:
    from shardkeep.protocol.messages import OpenCheckpoint

    attempt = client.run("lost-answers/conflict").begin_attempt(sk.World.alone())
    attempt.decide_resume()
    message = OpenCheckpoint(save=0, step=1, rank=0, world_size=1)
    first = client.service.open_checkpoint(attempt.id, message)
    assert client.service.open_checkpoint(attempt.id, message).checkpoint_id == first.checkpoint_id
    with pytest.raises(SaveConflict, match=r"1.*2|2.*1"):
        client.service.open_checkpoint(attempt.id, message.model_copy(update={"step": 2}))


def test_a_chunk_that_the_service_lost_is_sent_again(client: sk.Client, proxy: FaultyProxy) -> None:
    swallowed = proxy.fail(PUT_CHUNK, Reply(status=201, headers={}, body=b"{}"), forwards=False)
    state = {"w": noise(3, 3 << 20)}
    checkpoint = client.run("healing/lost").save(1, state).wait(60)
    assert swallowed.times == 0
    target = {"w": np.zeros(3 << 20, np.uint8)}
    checkpoint.load_into(target)
    np.testing.assert_equal(target, state)


def test_a_damaged_upload_is_refused_and_repeated(client: sk.Client, proxy: FaultyProxy) -> None:
    problem = b'{"title":"x","status":400,"detail":"the digest differs","code":"digest_mismatch","retryable":true}'
    refused = proxy.fail(
        PUT_CHUNK, Reply(status=400, headers={"content-type": "application/problem+json"}, body=problem), forwards=False
    )
    client.run("healing/damaged").save(1, {"w": noise(4, 1000)}).wait(60)
    assert refused.times == 0


def test_a_busy_service_is_asked_again_after_retry_after(client: sk.Client, proxy: FaultyProxy) -> None:
    proxy.fail(OPEN, Reply(status=503, headers={"retry-after": "1"}, body=b"busy"), times=1, forwards=False)
    started = time.monotonic()
    client.run("healing/busy").save(1, {"w": noise(4, 1000)}).wait(60)
    assert time.monotonic() - started >= 1


def test_E05_a_failure_is_raised_at_the_next_save(
    client: sk.Client, proxy: FaultyProxy, shared_service: ServiceProcess
) -> None:
    with sk.connect(proxy.url, shared_service.token, retry_seconds=1) as impatient:
        run = impatient.run("unavailable/run")
        run.save(1, {"w": noise(5, 1000)}).wait(60)
        fault = proxy.fail(PUT_CHUNK, Reply(status=503, headers={}, body=b"down"), times=10**6, forwards=False)
        handle = run.save(2, {"w": noise(6, 1000)})
        wait_until(handle.done)
        with pytest.raises(SaveFailed, match="step 2") as caught:
            run.save(3, {"w": noise(7, 1000)})
        assert caught.value.step == 2
        fault.times = 0
        assert run.save(3, {"w": noise(7, 1000)}).wait(60).step == 3
        assert [(item.step, item.state.value) for item in run.checkpoints()] == [
            (3, "committed"), (2, "aborted"), (1, "committed"),
        ]  # fmt: skip


def test_E05_a_failure_nobody_saw_is_raised_at_close(proxy: FaultyProxy, shared_service: ServiceProcess) -> None:
    client = sk.connect(proxy.url, shared_service.token, retry_seconds=1)
    proxy.fail(PUT_CHUNK, Reply(status=503, headers={}, body=b"down"), times=10**6, forwards=False)
    client.run("unavailable/close").save(2, {"w": noise(6, 1000)})
    with pytest.raises(SaveFailed, match="step 2"):
        client.close()


def test_a_service_that_is_away_longer_than_the_window_is_an_error_that_says_so(shared_service: ServiceProcess) -> None:
    client = sk.connect("http://127.0.0.1:9", shared_service.token, retry_seconds=0.5)
    with pytest.raises(ConnectionFailed, match=r"PUT .*/runs/r.*gave up after \d+ tries in 0.5 s"):
        client.run("p/r").save(1, {})


def test_a_save_survives_a_kill_and_restart_of_the_service(service: ServiceProcess) -> None:
    with sk.connect(service.url, service.token, retry_seconds=60) as client:
        run = client.run("restart/run")
        run.save(1, {"w": noise(1, 1000)}).wait(60)
        state = {"w": noise(2, 150 << 20)}
        handle = run.save(2, state)
        service.kill()
        time.sleep(0.5)
        service.start()
        target = {"w": np.zeros(150 << 20, np.uint8)}
        handle.wait(120).load_into(target)
        np.testing.assert_equal(target, state)


def _script(service: ServiceProcess, body: str, *, url: str | None = None) -> subprocess.CompletedProcess[str]:
    prelude = "import shardkeep as sk, numpy as np, sys\nassert 'torch' not in sys.modules\n"
    environment = service.environment()
    if url is not None:
        environment["SHARDKEEP_URL"] = url
    return subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(body)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path.cwd(),
    )


def test_E08_a_program_that_ends_right_after_save_waits_for_the_commit(shared_service: ServiceProcess) -> None:
    body = """
        state = {"w": np.random.default_rng(0).integers(0, 256, 60 << 20, np.uint8)}
        sk.connect().run("exit/committed").save(9, state)
    """
    ended = _script(shared_service, body)
    assert ended.returncode == 0, ended.stderr
    with sk.connect(shared_service.url, shared_service.token) as client:
        latest = client.run("exit/committed").latest()
        assert latest is not None
        assert latest.step == 9


def test_E08_a_program_that_ends_with_a_save_that_fails_says_so(
    shared_service: ServiceProcess, proxy: FaultyProxy
) -> None:
    proxy.fail(PUT_CHUNK, Reply(status=503, headers={}, body=b"down"), times=10**6, forwards=False)
    ended = _script(
        shared_service, 'sk.connect(retry_seconds=1).run("exit/failed").save(9, {"w": np.ones(9)})', url=proxy.url
    )
    assert "step 9 was not saved" in ended.stderr
    with sk.connect(shared_service.url, shared_service.token) as client:
        assert [item.state.value for item in client.run("exit/failed").checkpoints()] == ["aborted"]


def test_a_program_that_ends_while_staging_does_not_hang(shared_service: ServiceProcess) -> None:
    body = """
        attempt = sk.connect().run("exit/staging").begin_attempt(sk.World.alone())
        attempt.decide_resume()
        writer = attempt.start_save(1, expected_bytes=10)
    """
    ended = _script(shared_service, body)
    assert "ended before it was finished" in ended.stderr
