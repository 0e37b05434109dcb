"""Read targets that expire while a load goes on, from a store beside the service."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.connection import target_lifetimes
from shardkeep.errors import IntegrityError, PermissionDenied
from tests.faulty_proxy import Exchange, FaultyProxy, Reply
from tests.service_process import ServiceProcess

TARGETS = r"POST /v1/checkpoints/[^/]+/chunks/targets$"
STORE = r"GET /store/"
SIZE = 70 << 20


@dataclass
class PresignedStore:
    """Hands out targets of its own that live for so long by the clock, and refuses a key of before `revoked`.

    Keys of before `moved` find nothing. It is the `only_way` where it is given out also to who asks for the service.
    """

    proxy: FaultyProxy
    content: dict[str, bytes]
    lives_seconds: float = 900.0
    revoked: int = 0
    moved: int = 0
    only_way: bool = False
    asked: int = 0
    refused: int = field(default=0)

    def start(self) -> None:
        self.proxy.fail(TARGETS, self._targets, times=10**6)
        self.proxy.fail(STORE, self._read, times=10**6, forwards=False)

    def _targets(self, exchange: Exchange) -> Reply:
        if not json.loads(exchange.body).get("direct", True) and not self.only_way:
            return Reply()
        self.asked += 1
        expires = datetime.now(UTC) + timedelta(seconds=self.lives_seconds)
        targets = [
            {
                "method": "GET",
                "url": f"{self.proxy.url}/store/{digest}?key={self.asked}",
                "expires_at": expires.isoformat(),
            }
            for digest in json.loads(exchange.body)["digests"]
        ]
        return Reply(body=json.dumps({"targets": targets}).encode())

    def _read(self, exchange: Exchange) -> Reply:
        match = re.fullmatch(r"/store/([0-9a-f]{64})\?key=(\d+)", exchange.path)
        assert match is not None
        assert "authorization" not in exchange.headers
        if int(match[2]) <= self.revoked:
            self.refused += 1
            return Reply(status=403, headers={}, body=b"<Error><Code>AccessDenied</Code>Request has expired</Error>")
        if int(match[2]) <= self.moved:
            return Reply(status=404, headers={}, body=b"<Error><Code>NoSuchKey</Code></Error>")
        data = self.content[match[1]]
        start, last = (int(part) for part in exchange.headers["range"].removeprefix("bytes=").split("-"))
        headers = {"content-range": f"bytes {start}-{last}/{len(data)}"}
        return Reply(status=206, headers=headers, body=data[start : last + 1])


@dataclass
class Case:
    checkpoint: sk.Checkpoint
    store: PresignedStore
    state: dict[str, Any]

    def load(self) -> None:
        target = {"w": np.zeros(SIZE, np.uint8)}
        self.checkpoint.load_into(target)
        np.testing.assert_array_equal(target["w"], self.state["w"])


@pytest.fixture
def case(shared_service: ServiceProcess, request: pytest.FixtureRequest) -> Iterator[Case]:
    with (
        FaultyProxy(shared_service.port) as proxy,
        sk.connect(proxy.url, shared_service.token, codec="raw", connections=1) as client,
    ):
        state = {"w": np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)}
        checkpoint = client.run(f"targets/{abs(hash(request.node.name))}").save(1, state).wait(60)
        raw = state["w"].tobytes()
        content, start = {}, 0
        for chunk in {segment.chunk: None for record in checkpoint.manifest().slices() for segment in record.segments}:
            content[chunk.digest] = raw[start : start + chunk.size_bytes]
            start += chunk.size_bytes
        store = PresignedStore(proxy, content)
        store.start()
        yield Case(checkpoint, store, state)


@pytest.fixture
def all_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long this machine stands still between receiving a target and using it."""
    monkeypatch.setattr(target_lifetimes, "_FRESH_SECONDS", 300.0)


def test_one_request_serves_a_load(case: Case) -> None:
    case.load()
    assert (case.store.asked, case.store.refused) == (1, 0)


def test_a_target_that_the_store_says_has_expired_is_asked_for_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_lifetimes, "_YOUNG_SECONDS", 0.0)
    case.store.revoked = 1
    case.load()
    assert (case.store.asked, case.store.refused) == (2, 1)


def test_a_target_about_to_expire_is_asked_for_before_it_is_used(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_lifetimes, "_YOUNG_SECONDS", 0.0)
    case.store.lives_seconds = 5.0
    case.load()
    assert case.store.asked > 1
    assert case.store.refused == 0


def test_a_clock_that_runs_ahead_does_not_ask_for_every_chunk(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_lifetimes, "_YOUNG_SECONDS", 300.0)
    case.store.lives_seconds = -1000.0
    case.load()
    assert case.store.asked == 1


def test_a_store_that_refuses_every_target_is_given_up_and_the_service_gives_the_bytes(
    case: Case, caplog: pytest.LogCaptureFixture, all_fresh: None
) -> None:
    case.store.revoked = 10**6
    with caplog.at_level(logging.WARNING, logger="shardkeep"):
        case.load()
    assert (case.store.asked, case.store.refused) == (3, 3)
    said = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
    assert len(said) == 1
    assert "AccessDenied" in said[0]


def test_a_refusal_is_an_error_where_there_is_no_other_way(case: Case, all_fresh: None) -> None:
    case.store.revoked = 10**6
    case.store.only_way = True
    with pytest.raises(PermissionDenied, match="AccessDenied"):
        case.load()
    assert case.store.asked == 4


def test_an_object_that_moved_is_found_at_its_new_place(case: Case) -> None:
    case.store.moved = 1
    case.load()
    assert case.store.asked == 2


def test_an_object_that_is_gone_is_an_integrity_error(case: Case) -> None:
    case.store.moved = 10**6
    with pytest.raises(IntegrityError, match="its object is gone"):
        case.load()
