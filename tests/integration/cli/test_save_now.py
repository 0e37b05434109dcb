"""Asking a job to save, from the command line and from Python; the job is a keeper-less attempt of one rank here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from demo.gate import Gate, Trap
from shardkeep.errors import Conflict
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep.store.attempt import Attempt
from shardkeep.store.connect import Client, connect
from shardkeep.store.world import World
from tests.integration.cli.command_line import CommandLine, Done
from tests.waiting import wait_until

PATIENCE_SECONDS = 60.0


def begin(client: Client, run: str) -> Attempt:
    attempt = client.run(run).begin_attempt(World(0, 1, new_launch_id()))
    attempt.decide_resume(fresh=True)
    return attempt


@contextmanager
def behind_gate(shardkeep: CommandLine) -> Iterator[tuple[Gate, Client]]:
    """A client whose requests go through a gate."""
    gate = Gate(shardkeep.service.port)
    try:
        with connect(gate.url, shardkeep.service.token) as client:
            yield gate, client
    finally:
        gate.close()


def save(attempt: Attempt, step: int) -> str:
    with attempt.start_save(step, expected_bytes=0) as writer:
        handle = writer.finish([], {}, {})
    return handle.wait(60).id


def abort(attempt: Attempt, step: int) -> None:
    attempt.start_save(step, expected_bytes=0).abort("on purpose")
    attempt.wait_in_flight()


def test_asking_returns_at_once_and_asking_again_is_the_same_request(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        attempt = begin(client, "asked/once")
        first = shardkeep.ok("save-now", "asked/once", "--json").document
        assert first["checkpoint"] is None
        assert (first["save_request"]["number"], first["save_request"]["state"]) == (1, "waiting")
        shown = shardkeep.ok("save-now", "asked/once").out
        assert shown == f"asked/once is asked to save at its next step: request 1 of {attempt.id}\n"
        assert client.run("asked/once").request_save().number == 1
        checkpoint = save(attempt, 1)
        done = client.run("asked/once").save_request()
        assert (done.state, done.checkpoint_id) == ("done", checkpoint)


def test_a_request_whose_answer_is_lost_is_no_second_save_though_training_took_it_up(shardkeep: CommandLine) -> None:
    saved: list[str] = []
    with shardkeep.client() as client, behind_gate(shardkeep) as (gate, asking):
        attempt = begin(client, "asked/lost")

        def save_and_lose_the_answer() -> None:
            saved.append(save(attempt, 1))
            raise ConnectionResetError("the answer is lost")

        gate.set_trap(Trap("^POST .*/save-request", 1, save_and_lose_the_answer, "after"))
        asked = asking.run("asked/lost").request_save()

        assert len([request for request in gate.requests if request.startswith("POST")]) == 2, "it was sent again"
    assert (asked.number, asked.state, [asked.checkpoint_id]) == (1, "done", saved)


def test_who_saw_the_requests_of_an_attempt_that_is_then_fenced_asks_the_newer_one(shardkeep: CommandLine) -> None:
    newer: list[Attempt] = []
    with shardkeep.client() as client, behind_gate(shardkeep) as (gate, asking):
        attempt = begin(client, "asked/newer")
        client.run("asked/newer").request_save()
        save(attempt, 1)
        gate.set_trap(Trap("^POST .*/save-request", 1, lambda: newer.append(begin(client, "asked/newer"))))

        asked = asking.run("asked/newer").request_save()

    assert [asked.attempt_id] == [one.id for one in newer]
    assert (asked.number, asked.state) == (1, "waiting")


def test_a_run_that_nothing_trains_is_refused(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        client.service.ensure_run("asked", "never")
        with pytest.raises(Conflict, match="no_attempt"):
            client.run("asked/never").request_save()
        assert client.run("asked/never").save_request().state == "none"
    refused = shardkeep("save-now", "asked/never", "--json")
    assert (refused.code, refused.error["code"]) == (4, "no_attempt")
    assert shardkeep("save-now", "asked/unknown", "--json").code == 3
    assert shardkeep("save-now", "asked", "--json").code == 2


class Waiting:
    """`save-now --wait` in a thread."""

    def __init__(self, shardkeep: CommandLine, run: str, *options: str) -> None:
        self._done: list[Done] = []
        self._thread = threading.Thread(
            target=lambda: self._done.append(shardkeep("save-now", run, "--wait", *options))
        )
        self._thread.start()

    def result(self) -> Done:
        self._thread.join(PATIENCE_SECONDS)
        return self._done[0]


def test_waiting_ends_with_the_committed_checkpoint_after_an_abort_too(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        run = client.run("asked/waited")
        attempt = begin(client, "asked/waited")
        waiting = Waiting(shardkeep, "asked/waited")
        wait_until(lambda: run.save_request().state == "waiting")
        abort(attempt, 1)
        checkpoint = save(attempt, 2)
        done = waiting.result()
    assert (done.code, done.out) == (0, f"{checkpoint} (step 2 of asked/waited) is committed\n")
    assert "request 1 waits for the next step of asked/waited" in done.err


def test_waiting_with_json_gives_one_document_with_the_checkpoint(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        run = client.run("asked/json")
        attempt = begin(client, "asked/json")
        waiting = Waiting(shardkeep, "asked/json", "--json")
        wait_until(lambda: run.save_request().state == "waiting")
        checkpoint = save(attempt, 7)
        document = waiting.result().document
    assert (document["save_request"]["state"], document["save_request"]["checkpoint_id"]) == ("done", checkpoint)
    assert (document["checkpoint"]["id"], document["checkpoint"]["step"]) == (checkpoint, 7)


def test_waiting_for_an_attempt_that_ends_fails_and_says_so(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        run = client.run("asked/ended")
        begin(client, "asked/ended")
        waiting = Waiting(shardkeep, "asked/ended", "--json")
        wait_until(lambda: run.save_request().state == "waiting")
        begin(client, "asked/ended")
        done = waiting.result()
    assert (done.code, done.error["code"]) == (1, "attempt_ended")
