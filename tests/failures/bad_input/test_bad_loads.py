"""Loads into what does not fit, from what is damaged or too new, and through what does not answer."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import shardkeep as sk
from shardkeep.errors import (
    ConnectionFailed,
    DtypeMismatch,
    IntegrityError,
    LoadError,
    ServiceUnavailable,
    ShapeMismatch,
    ShardkeepError,
    VersionTooNew,
)
from tests.failures.bad_input.kept_checkpoint import Kept, known_state
from tests.faulty_proxy import DROPPED, Exchange, FaultyProxy, Reply
from tests.service_process import ServiceProcess

CHUNK = r"GET /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"
MANIFEST = r"GET /v1/checkpoints/[^/]+/manifests/"
LOAD_PLAN = r"POST /v1/checkpoints/[^/]+/load-plan$"


@pytest.fixture
def proxy(shared_service: ServiceProcess) -> Iterator[FaultyProxy]:
    with FaultyProxy(shared_service.port) as made:
        yield made


@pytest.fixture
def distant(shared_service: ServiceProcess, proxy: FaultyProxy) -> Iterator[sk.Client]:
    """A client behind the proxy that does not wait long."""
    made = sk.connect(proxy.url, shared_service.token, retry_seconds=1.0)
    yield made
    made.service.close()


@pytest.mark.parametrize(
    ("weight", "error", "says"),
    [
        (np.full((40, 300), 5.0, np.float32), ShapeMismatch, r"model\.weight.*\(300, 40\).*\(40, 300\)"),
        (np.full(12_000, 5.0, np.float32), ShapeMismatch, r"model\.weight.*\(300, 40\).*\(12000,\)"),
        (np.full((300, 41), 5.0, np.float32), ShapeMismatch, r"model\.weight.*\(300, 40\).*\(300, 41\)"),
        (np.full((300, 40), 5.0, np.float64), DtypeMismatch, r"model\.weight.*float32.*float64.*cast=True"),
        (np.full((300, 40), 5, np.int32), DtypeMismatch, r"model\.weight.*float32.*int32.*cast=True"),
    ],
)
def test_a_state_of_another_shape_or_dtype(
    kept: Kept, weight: np.ndarray[Any, Any], error: type[LoadError], says: str
) -> None:
    state = known_state()
    target = {**state, "model": {**state["model"], "weight": weight, "bias": np.full(40, 5.0)}, "epoch": -1}
    with pytest.raises(error, match=says) as caught:
        kept.checkpoint.load_into(target)
    assert caught.value.names == ("model.weight",)
    assert (weight == 5).all()
    assert (target["model"]["bias"] == 5).all(), "nothing else was written either"
    assert target["epoch"] == -1


@pytest.mark.parametrize("what", [MANIFEST, LOAD_PLAN])
@pytest.mark.parametrize("change", [struct.pack("<HH", 2, 0), struct.pack("<HH", 1, 0x8000)])
def test_a_checkpoint_of_a_newer_version(
    kept: Kept, proxy: FaultyProxy, distant: sk.Client, what: str, change: bytes
) -> None:
    def newer(exchange: Exchange) -> Reply:
        return Reply(body=exchange.answer[:4] + change + exchange.answer[8:])

    proxy.fail(what, newer, times=10**6)
    target = {**known_state(), "step": np.array(-1)}
    latest = kept.other_run_object(distant).latest()
    assert latest is not None
    with pytest.raises(VersionTooNew, match="upgrade shardkeep"):
        latest.load_into(target)
    assert target["step"] == -1


FAILURES = {
    "unavailable": (Reply(status=503, headers={}, body=b"down"), ServiceUnavailable),
    "dropped": (DROPPED, ConnectionFailed),
    "gone": (Reply(status=404, headers={}, body=b"<html>no such object"), ShardkeepError),
    "proxy error": (Reply(status=502, headers={"content-type": "text/html"}, body=b"<html>"), ServiceUnavailable),
}


@pytest.mark.parametrize("failure", list(FAILURES))
@pytest.mark.parametrize("what", [CHUNK, MANIFEST, LOAD_PLAN, r"POST .*/resume$", r"POST .*/attempts$"])
def test_a_read_that_fails_during_resume(
    kept: Kept, proxy: FaultyProxy, distant: sk.Client, failure: str, what: str
) -> None:
    reply, error = FAILURES[failure]
    fault = proxy.fail(what, reply, times=10**6, forwards=False)
    live = {"model": {"weight": torch.full((300, 40), 5.0), "bias": torch.full((40,), 5.0, dtype=torch.float64)}}
    keeper = sk.Checkpointer(
        kept.other_run_object(distant),
        state={**live},
    )
    with pytest.raises(error):
        keeper.resume(allow_unexpected=["model.empty"])
    fault.times = 0
    keeper.close()
    assert keeper.resumed is None


def test_damaged_bytes(kept: Kept, proxy: FaultyProxy, distant: sk.Client) -> None:
    def damaged(exchange: Exchange) -> Reply:
        return Reply(body=bytes([exchange.answer[0] ^ 1]) + exchange.answer[1:])

    proxy.fail(CHUNK, damaged, times=10**6)
    latest = kept.other_run_object(distant).latest()
    assert latest is not None
    with pytest.raises(IntegrityError, match=r"chunk [0-9a-f]{64}.*damaged on the way"):
        latest.load_into(known_state())
