"""A rank that is killed while its chunks are on their way to the object store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faulty_proxy import Exchange
from tests.integration.client.direct_service import PUT, DirectService, assert_loads, direct_service, many, small_chunks
from tests.servers.seaweedfs import S3Server

pytestmark = pytest.mark.s3

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def service(seaweedfs: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectService]:
    with direct_service(seaweedfs, tmp_path_factory.mktemp("kills")) as made:
        yield made


def start_rank(service: DirectService, run: str, *, step: int, seed: int, chunks: int) -> subprocess.Popen[bytes]:
    arguments = [service.front.url, service.process.token, run, str(step), str(seed), str(chunks)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.failures.storage.direct_rank", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


@pytest.mark.parametrize("killed_at", [1, 4, 9])
def test_a_rank_killed_in_the_middle_leaves_latest_as_it_was_and_the_next_save_is_whole(
    service: DirectService, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    small_chunks(monkeypatch)
    name = f"killed/run-{killed_at}"
    first, second = many(10 * killed_at, 10), many(10 * killed_at + 1, 10)
    with service.connect() as client:
        whole = client.run(name).save(1, first).wait(60)
    service.store.forget()

    def kill(_: Exchange) -> None:
        os.kill(rank.pid, signal.SIGKILL)

    service.store.tamper(PUT, lambda _: None, times=killed_at - 1)
    service.store.tamper(PUT, kill)
    rank = start_rank(service, name, step=2, seed=10 * killed_at + 1, chunks=10)
    assert rank.wait(60) == -signal.SIGKILL

    with service.connect() as client:
        run = client.run(name)
        latest = run.latest()
        assert latest is not None
        assert latest.id == whole.id
        resumed = run.resume()
        assert resumed is not None
        assert resumed.id == whole.id
        assert_loads(run.save(2, second).wait(60), second)
        assert_loads(client.checkpoint(whole.id), first)
        taken_over = [key for key in service.chunk_keys() if key.endswith(".2")]
        assert taken_over, "what the killed rank had pending is sent under keys of the new checkpoint"
