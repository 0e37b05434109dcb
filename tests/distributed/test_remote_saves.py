"""Saves asked for at the service, on real ranks: one hears of it, all save at the same step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import shardkeep as sk
from shardkeep.store.connect import Client
from tests.distributed import remote_saves
from tests.distributed.launcher import RankPools
from tests.service_process import ServiceProcess

_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(shared_service: ServiceProcess) -> Iterator[Client]:
    with sk.connect(shared_service.url, shared_service.token) as connected:
        yield connected


@pytest.fixture
def run() -> str:
    return f"remote-ranks/run-{next(_numbers)}"


def committed_steps(client: Client, run: str) -> list[int]:
    return [item.step for item in client.run(run).checkpoints(state="committed")][::-1]


def test_all_ranks_save_once_at_the_step_after_the_request_and_a_due_save_serves_it_too(
    pools: RankPools, client: Client, run: str
) -> None:
    ranks = pools.of(2).run(remote_saves.save_when_asked, run=run)

    assert ranks == [{"watching": 1, "failures": 0}, {"watching": 0, "failures": 0}]
    assert committed_steps(client, run) == [4, 7]
    done = client.run(run).save_request()
    assert (done.number, done.state) == (2, "done")


def test_a_request_made_while_a_save_is_in_flight_is_served_by_another_one(
    pools: RankPools, client: Client, run: str
) -> None:
    assert pools.of(2).run(remote_saves.ask_while_a_save_is_in_flight, run=run) == [[], []]

    assert committed_steps(client, run) == [1, 3]
    first, second = sorted(client.run(run).checkpoints(state="committed"), key=lambda item: item.step)
    done = client.run(run).save_request()
    assert (done.state, done.checkpoint_id) == ("done", second.id)
    assert done.requested_at is not None
    assert first.committed_at is not None
    assert done.requested_at < first.committed_at


def test_the_poll_of_a_fenced_attempt_ends_and_its_training_learns_it_by_saving(
    pools: RankPools, client: Client, run: str
) -> None:
    assert pools.of(2).run(remote_saves.go_on_after_the_fence, run=run) == ["fenced", "fenced"]

    waiting = client.run(run).save_request()
    assert (waiting.number, waiting.state) == (1, "waiting"), "it is the newer attempt's"
