"""Sessions, states and the end of a save that a rank leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.checkpoints.expiry import EXPIRY, expire_checkpoints
from shardkeep_service.worker.models import Lease
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training
from tests.waiting import wait_until

pytestmark = BOTH_DATABASES


def _beat(training: Training, checkpoint: str, rank: int) -> dict[str, Any]:
    return training.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=rank))


def _state_path(checkpoint: str) -> str:
    return routes.path(routes.STATE, checkpoint=checkpoint)


def test_E17_a_rank_that_never_opens_is_named_after_the_deadline(training: Training) -> None:
    attempt = training.start(4)
    checkpoint = training.open(attempt, save=1, step=10, rank=0, world_size=4)["checkpoint_id"]
    training.open(attempt, save=1, step=10, rank=2, world_size=4)
    settings = training.service.settings
    while training.service.database.ahead_micros < settings.open_deadline_seconds * 1e6:
        assert expire_checkpoints(training.service.context) == []
        training.service.advance(settings.lease_seconds - 20)
        for rank in (0, 2):
            _beat(training, checkpoint, rank)
    training.service.advance(20)

    assert expire_checkpoints(training.service.context) == [checkpoint]

    abort = _beat(training, checkpoint, 0)["abort"]
    assert (abort["code"], abort["ranks"]) == ("ranks_missing", [1, 3])
    assert "1, 3" in abort["reason"]


def test_a_rank_that_falls_silent_before_its_manifest_is_named(training: Training) -> None:
    attempt = training.start(3)
    checkpoint = training.open_all(attempt, save=1, step=10, world_size=3)
    packed = training.pack_all(10, 3)
    training.upload(checkpoint, 0, packed[0])
    training.hand_in(checkpoint, 0, packed[0])
    training.service.advance(100)
    _beat(training, checkpoint, 1)
    training.service.advance(100)

    assert expire_checkpoints(training.service.context) == [checkpoint]
    assert expire_checkpoints(training.service.context) == []

    abort = training.info(checkpoint)["abort"]
    assert (abort["code"], abort["ranks"]) == ("session_lapsed", [2])


def _open_again(training: Training, attempt: str, checkpoint: str) -> None:
    training.open(attempt, save=1, step=10, rank=0)


def _negotiate(training: Training, attempt: str, checkpoint: str) -> None:
    body = {"rank": 0, "chunks": [{"digest": "0" * 64, "size": 1, "crc64": 0}]}
    training.service.ask("POST", routes.path(routes.NEGOTIATE, checkpoint=checkpoint), body)


def _upload(training: Training, attempt: str, checkpoint: str) -> None:
    training.upload(checkpoint, 0, training.pack_all(10)[0])


def _poll(training: Training, attempt: str, checkpoint: str) -> None:
    training.service.ask("GET", _state_path(checkpoint), query={"rank": 0, "known": "open"})


@pytest.mark.parametrize("request_of_rank", [_open_again, _negotiate, _upload, _poll])
def test_any_request_of_a_rank_renews_its_session(
    training: Training, request_of_rank: Callable[[Training, str, str], None]
) -> None:
    attempt = training.start()
    checkpoint = training.open_all(attempt, save=1, step=10)
    for _ in range(3):
        training.service.advance(100)
        _beat(training, checkpoint, 1)
        request_of_rank(training, attempt, checkpoint)

        assert expire_checkpoints(training.service.context) == []


def test_an_onlooker_renews_nothing(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    headers = {"authorization": f"Bearer {training.service.new_token(Scope.READ)}"}
    training.service.advance(100)

    training.service.ask("GET", _state_path(checkpoint), headers=headers, query={"rank": 0})
    training.service.advance(100)

    assert expire_checkpoints(training.service.context) == [checkpoint]


def test_a_checkpoint_all_of_whose_manifests_arrived_never_expires(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    training.finish(checkpoint, training.pack_all(10))
    training.service.advance(1e6)

    assert expire_checkpoints(training.service.context) == []
    assert training.latest_id() == checkpoint


def test_beats_say_what_the_state_is_and_refuse_strangers(training: Training) -> None:
    attempt = training.start()
    checkpoint = training.open(attempt, save=1, step=10, rank=0)["checkpoint_id"]

    answer = _beat(training, checkpoint, 0)

    assert (answer["state"], answer["arrived"], answer["world_size"], answer["waiting_for"]) == ("open", 0, 2, [0, 1])
    service = training.service
    service.refused("checkpoint_not_open", "POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=1))
    service.refused("rank_out_of_range", "POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=2))
    service.refused("unknown_checkpoint", "POST", routes.path(routes.BEAT, checkpoint="ckp_" + "0" * 32, rank=0))


def _wait_until_in_progress(training: Training, polls: int) -> None:
    in_progress = training.service.context.metrics.requests_in_progress
    wait_until(lambda: in_progress._value.get() == polls, seconds=20)


def test_a_long_poll_ends_when_the_state_changes_and_a_thousand_take_no_thread_each(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    found: list[str] = []
    query = {"known": "open", "wait_seconds": 30}

    def poll(_: int) -> None:
        found.append(training.service.ask("GET", _state_path(checkpoint), query=query)["state"])

    with ThreadPoolExecutor(60) as pool:
        polls = [pool.submit(poll, number) for number in range(60)]
        _wait_until_in_progress(training, 60)
        assert not found
        began = time.monotonic()
        body = {"rank": 1, "reason": "stop"}
        training.service.ask("POST", routes.path(routes.ABORT, checkpoint=checkpoint), body)
        for one in polls:
            one.result()

    assert time.monotonic() - began < 25
    assert found == ["aborted"] * 60


def test_a_long_poll_on_arrivals_ends_within_about_a_second_of_one(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    training.upload(checkpoint, 0, packed[0])
    query = {"known": "open", "arrived": 0, "wait_seconds": 30}
    found: list[dict[str, Any]] = []
    poller = threading.Thread(
        target=lambda: found.append(training.service.ask("GET", _state_path(checkpoint), query=query))
    )
    poller.start()
    _wait_until_in_progress(training, 1)

    training.hand_in(checkpoint, 0, packed[0])
    poller.join(20)

    assert [answer["arrived"] for answer in found] == [1]


def test_a_long_poll_without_news_ends_with_the_time(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    began = time.monotonic()

    query = {"known": "open", "wait_seconds": 0.5}
    state = training.service.ask("GET", _state_path(checkpoint), query=query)

    assert state["state"] == "open"
    assert 0.4 < time.monotonic() - began < 20


def test_aborting_is_idempotent_and_final(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    path = routes.path(routes.ABORT, checkpoint=checkpoint)

    first = training.service.ask("POST", path, {"rank": 1, "reason": "out of memory"})
    second = training.service.ask("POST", path, {"rank": 0, "reason": "another"})

    assert first == second
    assert first["abort"] == {
        "code": "aborted_by_client",
        "reason": "rank 1 gave up: out of memory",
        "rank": 1,
        "ranks": [1],
        "tensors": [],
    }


def test_somebody_who_is_no_rank_ends_a_save_by_the_name_of_the_token(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    name = training.service.ask("GET", routes.TOKEN_SELF)["name"]

    state = training.service.ask("POST", routes.path(routes.ABORT, checkpoint=checkpoint), {"reason": "a node is gone"})

    assert state["abort"] == {
        "code": "aborted_by_client",
        "reason": f"{name} ended it: a node is gone",
        "rank": None,
        "ranks": [],
        "tensors": [],
    }


def test_a_committed_checkpoint_cannot_be_aborted(training: Training) -> None:
    checkpoint = training.save(training.start(), save=1, step=10)
    path = routes.path(routes.ABORT, checkpoint=checkpoint)

    problem = training.service.refused("checkpoint_not_open", "POST", path, {"rank": 0, "reason": "late"})

    assert problem["state"] == "committed"
    training.service.refused("rank_out_of_range", "POST", path, {"rank": 2, "reason": "late"})
    assert training.latest_id() == checkpoint


def test_E06_latest_stays_at_the_whole_one_while_a_newer_save_is_under_way(training: Training) -> None:
    attempt = training.start()
    whole = training.save(attempt, save=1, step=100)
    packed = training.pack_all(200)
    newer = training.open_all(attempt, save=2, step=200)

    for rank in range(2):
        assert training.latest_id() == whole
        assert training.load(whole).shape == (4, 4)
        training.upload(newer, rank, packed[rank])
        training.hand_in(newer, rank, packed[rank])
    training.service.wait_until_settled(newer)

    assert training.latest_id() == newer


@pytest.mark.parametrize(("overdue_seconds", "aborted"), [(600, False), (1, True)])
def test_after_an_outage_of_database_or_workers_sessions_get_a_whole_lease_before_any_is_taken_as_lapsed(
    training: Training, overdue_seconds: float, aborted: bool
) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    database, context = training.service.database, training.service.context
    training.service.advance(context.settings.lease_seconds + 1)
    with database.write() as session:
        due_at = database.now(session) - round(overdue_seconds * 1e6)
        session.add(Lease(name=EXPIRY, owner=None, until=0, due_at=due_at))
    assert expire_checkpoints(context) == ([checkpoint] if aborted else [])
    if not aborted:
        training.service.advance(context.settings.lease_seconds + 1)
        with database.write() as session:
            session.get_one(Lease, EXPIRY).due_at = database.now(session)
        assert expire_checkpoints(context) == [checkpoint]
