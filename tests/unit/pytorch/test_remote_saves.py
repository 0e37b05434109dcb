"""Saves that are asked for at the service, on one rank against a real one."""

from __future__ import annotations

import gc
import itertools
import logging
import random
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import shardkeep as sk
from demo.gate import Gate
from shardkeep.connection.transport import HttpAnswer, HttpRequest, Transport
from shardkeep.errors import ConfigurationError, Conflict, UnsupportedValue
from shardkeep.protocol.messages import SaveRequestInfo
from shardkeep.pytorch.checkpointer import Checkpointer
from shardkeep.store.connect import Client
from shardkeep.store.request_watch import WAIT_SECONDS, RequestWatch
from tests.service_process import ServiceProcess
from tests.waiting import wait_until

_numbers = itertools.count()
PATIENCE_SECONDS = 60.0
WATCH = "shardkeep-requests"
QUICK_WATCH = {"wait_seconds": 0.05, "first_pause_seconds": 0.01}


@pytest.fixture(scope="module")
def client(shared_service: ServiceProcess) -> Iterator[Client]:
    with sk.connect(shared_service.url, shared_service.token) as connected:
        yield connected


@pytest.fixture
def run(client: Client) -> str:
    return f"remote/run-{next(_numbers)}"


def make_keeper(client: Client, run: str, **options: Any) -> Checkpointer:
    return Checkpointer(client.run(run), loop={"n": 0}, **options)


def ask(client: Client, run: str, keeper: Checkpointer) -> SaveRequestInfo:
    """Asks, and waits until the keeper has heard of it."""
    before = keeper._wishes._asked
    info = client.run(run).request_save()
    wait_until(lambda: keeper._wishes._asked > before)
    return info


def steps(client: Client, run: str) -> list[int]:
    return [item.step for item in client.run(run).checkpoints(state="committed")][::-1]


def watches() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == WATCH}


def test_the_next_step_saves_what_somebody_asks_for_and_the_request_is_then_done(client: Client, run: str) -> None:
    with make_keeper(client, run) as keeper:
        keeper.resume()
        keeper.step(1)
        asked = ask(client, run, keeper)
        assert (asked.number, asked.state) == (1, "waiting")
        keeper.step(2)
        saved = keeper.wait()
        keeper.step(3)
    assert saved is not None
    assert steps(client, run) == [2]
    done = client.run(run).save_request()
    assert (done.number, done.state, done.checkpoint_id) == (1, "done", saved.id)


def test_however_many_ask_the_next_step_saves_once(client: Client, run: str) -> None:
    with make_keeper(client, run) as keeper:
        keeper.resume()
        ask(client, run, keeper)
        assert {client.run(run).request_save().number for _ in range(5)} == {1}
        for n in range(1, 5):
            keeper.step(n)
    assert steps(client, run) == [1]


def test_a_save_that_is_due_anyway_is_the_one_asked_for(client: Client, run: str) -> None:
    with make_keeper(client, run, every_steps=2) as keeper:
        keeper.resume()
        keeper.step(1)
        ask(client, run, keeper)
        keeper.save(2)
        for n in (2, 3):
            keeper.step(n)
    assert steps(client, run) == [2]
    assert client.run(run).save_request().state == "done"


def test_a_request_that_comes_after_the_save_of_a_step_is_served_by_the_next_step(client: Client, run: str) -> None:
    with make_keeper(client, run) as keeper:
        keeper.resume()
        keeper.save(1)
        keeper.wait()
        ask(client, run, keeper)
        keeper.step(1)
        assert client.run(run).save_request().state == "waiting", "the checkpoint of step 1 is older"
        keeper.step(2)
        keeper.step(3)
    assert steps(client, run) == [1, 2]
    assert client.run(run).save_request().state == "done"


def test_a_request_that_comes_while_a_save_is_in_flight_is_served_by_the_next_step(
    client: Client, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    call = Transport.call

    def slow_call(self: Transport, request: HttpRequest, **options: Any) -> HttpAnswer:
        if "/manifests/" in request.url:
            assert held.wait(PATIENCE_SECONDS)
        return call(self, request, **options)

    monkeypatch.setattr(Transport, "call", slow_call)
    with make_keeper(client, run, every_steps=10) as keeper:
        keeper.resume()
        keeper.step(10)
        wait_until(lambda: len(list(client.run(run).checkpoints(state="open"))) == 1)
        assert ask(client, run, keeper).state == "waiting"
        threading.Timer(0.1, held.set).start()
        keeper.step(11)
        keeper.step(12)
    assert steps(client, run) == [10, 11]
    assert client.run(run).save_request().state == "done"


def test_a_request_whose_save_is_aborted_makes_the_next_step_save_again(
    client: Client, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestWatch.__init__, "__kwdefaults__", QUICK_WATCH)
    loop: dict[str, Any] = {"callback": print}
    with Checkpointer(client.run(run), loop=loop) as keeper:
        keeper.resume()
        ask(client, run, keeper)
        with pytest.raises(UnsupportedValue):
            keeper.save(1)
        wait_until(lambda: keeper._wishes._asked == 2)
        loop["callback"] = "print"
        keeper.step(2)
        keeper.step(3)
    assert steps(client, run) == [2]
    assert client.run(run).save_request().state == "done"


def test_after_a_rollback_the_new_attempt_is_asked_and_the_old_one_is_not(client: Client, run: str) -> None:
    before = watches()
    with make_keeper(client, run) as keeper:
        keeper.resume()
        keeper.save(1)
        keeper.resume()
        wait_until(lambda: len(watches() - before) == 1)
        asked = ask(client, run, keeper)
        keeper.step(2)
        assert asked.number == 1
    assert steps(client, run) == [1, 2]


def test_each_rollback_lets_go_of_what_waited_for_requests_to_the_attempt_before(client: Client, run: str) -> None:
    seen: list[weakref.ref[RequestWatch]] = []
    with make_keeper(client, run) as keeper:
        for _ in range(3):
            keeper.resume()
            assert keeper._watch is not None
            seen.append(weakref.ref(keeper._watch))
        gc.collect()
        assert [watch() is not None for watch in seen] == [False, False, True]
        keeper.close()
        gc.collect()
        assert seen[-1]() is None


def test_a_keeper_that_never_resumed_is_asked_from_its_first_save_on(client: Client, run: str) -> None:
    with make_keeper(client, run) as keeper:
        client.service.ensure_run(*run.split("/"))
        with pytest.raises(Conflict, match="no_attempt"):
            client.run(run).request_save()
        keeper.save(1)
        keeper.wait()  # or its checkpoint, opened only now, takes the request up
        ask(client, run, keeper)
        keeper.step(2)
    assert steps(client, run) == [1, 2]


def test_closing_ends_the_poll_at_once_and_leaves_no_thread(
    client: Client, run: str, shared_service: ServiceProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardkeep")
    gate = Gate(shared_service.port)
    before = watches()
    with sk.connect(gate.url, shared_service.token) as through_gate:
        keeper = make_keeper(through_gate, run)
        keeper.resume()
        wait_until(lambda: any("save-request" in request for request in gate.requests))
        keeper.close()
        wait_until(lambda: not watches() - before, seconds=WAIT_SECONDS / 2)  # the service has not answered
    gate.close()
    assert "cannot be heard of" not in caplog.text


def test_a_keeper_that_is_dropped_without_being_closed_leaves_no_thread(client: Client, run: str) -> None:
    before = watches()
    keeper = make_keeper(client, run, signals=False)
    keeper.resume()
    assert len(watches() - before) == 1
    del keeper
    gc.collect()
    wait_until(lambda: not watches() - before)


def test_training_waits_for_no_request_about_requests(
    client: Client, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_thread: list[tuple[str, str]] = []
    call = Transport.call

    def noted_call(self: Transport, request: HttpRequest, **options: Any) -> HttpAnswer:
        by_thread.append((threading.current_thread().name, request.name))
        return call(self, request, **options)

    monkeypatch.setattr(Transport, "call", noted_call)
    with make_keeper(client, run) as keeper:
        keeper.resume()
        by_thread.clear()
        for n in range(1, 200):
            keeper.step(n)
        assert {thread for thread, _ in by_thread} <= {WATCH}
        assert {name for _, name in by_thread} <= {
            f"GET /v1/attempts/{keeper._present_saver().attempt.id}/save-request"
        }


def test_hearing_of_requests_draws_from_no_generator_of_training(
    service: ServiceProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="shardkeep")
    monkeypatch.setattr(RequestWatch.__init__, "__kwdefaults__", QUICK_WATCH)
    with sk.connect(service.url, service.token, retry_seconds=1.0) as client:
        keeper = make_keeper(client, "p/r")
        keeper.resume()
        before = random.getstate(), torch.get_rng_state()
        service.kill()
        wait_until(lambda: "cannot be heard of" in caplog.text)
        for n in range(1, 20):
            assert keeper.step(n) is False, "training goes on"
        service.start()
        wait_until(lambda: "heard of again" in caplog.text)
        assert random.getstate() == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])
        ask(client, "p/r", keeper)
        keeper.step(20)
        keeper.close()
        assert steps(client, "p/r") == [20]
    assert caplog.text.count("cannot be heard of") == 1


def test_without_remote_saves_nobody_polls_and_signals_work_as_ever(client: Client, run: str) -> None:
    before = watches()
    with make_keeper(client, run, remote_saves=False) as keeper:
        keeper.resume()
        assert not watches() - before
        client.run(run).request_save()
        keeper.step(1)
        signal.raise_signal(signal.SIGUSR1)
        keeper.step(2)
    assert steps(client, run) == [2]
    assert client.run(run).save_request().state == "done", "whatever made it save"


def test_without_signals_requests_are_heard_all_the_same(client: Client, run: str) -> None:
    with make_keeper(client, run, signals=False) as keeper:
        keeper.resume()
        ask(client, run, keeper)
        keeper.step(1)
    assert steps(client, run) == [1]


def test_ranks_without_a_process_group_hear_of_no_requests_and_may_not_ask(
    client: Client, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardkeep")
    before = watches()
    with make_keeper(client, run, signals=False, rank=0, world_size=2, launch_id="ab" * 16) as keeper:
        with pytest.raises(ConfigurationError, match="no process group"):
            keeper.request_save()
        assert not watches() - before
    assert "saves cannot be asked for from outside: without a process group" in caplog.text
