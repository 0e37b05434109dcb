"""A load that takes over two seconds says on stderr how far it is, on rank 0 only."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.store.run import Run
from shardkeep.uploader import progress
from tests.faulty_proxy import Exchange, FaultyProxy, Reply
from tests.service_process import ServiceProcess

CHUNK = r"GET /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"
SIZE = 40 << 20


@pytest.fixture
def slow(shared_service: ServiceProcess) -> Iterator[sk.Client]:
    """Each chunk takes 2.6 seconds."""

    def late(exchange: Exchange) -> Reply:
        time.sleep(2.6)
        return Reply()

    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token, codec="raw") as client:
        proxy.fail(CHUNK, late, times=10**6)
        yield client


def saved(run: Run) -> sk.Checkpoint:
    return run.save(7, {"w": np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)}).wait(60)


def test_a_slow_load_says_how_far_it_is(
    slow: sk.Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    saved(slow.run("progress/alone"))
    checkpoint = slow.run("progress/alone").latest()
    assert checkpoint is not None
    checkpoint.load_into({"w": np.zeros(SIZE, np.uint8)})
    shown = capsys.readouterr().err
    assert re.search(r"shardkeep: reading step 7: \d\.\d\d of 0\.04 GB \(\d+ s\)", shown), shown


def test_only_rank_0_says_it(
    slow: sk.Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = slow.run("progress/ranks")
    saved(run)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    checkpoint = run.latest()
    assert checkpoint is not None
    capsys.readouterr()
    checkpoint.load_into({"w": np.zeros(SIZE, np.uint8)})
    assert capsys.readouterr().err == ""


def test_a_quick_load_says_nothing(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SILENT_SECONDS", 60.0)  # quick on a machine that stands still too
    checkpoint = run.save(7, {"w": np.zeros(1000)}).wait(60)
    capsys.readouterr()
    checkpoint.load_into({"w": np.zeros(1000)})
    assert capsys.readouterr().err == ""
