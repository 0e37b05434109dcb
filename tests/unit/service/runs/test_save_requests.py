"""Requests to save now: they coalesce, the next checkpoint takes one up, and training hears of it by a long poll."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardkeep.protocol import routes
from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.fetched_rows import counted
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training
from tests.waiting import wait_until

pytestmark = BOTH_DATABASES


def ask(training: Training, **query: int) -> dict[str, Any]:
    return training.service.ask("POST", training.path(routes.RUN_SAVE_REQUEST), query=query)


def present(training: Training) -> dict[str, Any]:
    return training.service.ask("GET", training.path(routes.RUN_SAVE_REQUEST))


def poll_path(attempt: str) -> str:
    return routes.path(routes.ATTEMPT_SAVE_REQUEST, attempt=attempt)


def poll(training: Training, attempt: str, **query: float) -> dict[str, Any]:
    return training.service.ask("GET", poll_path(attempt), query=query)


def abort(training: Training, checkpoint: str) -> None:
    body = {"rank": 0, "reason": "no more"}
    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=checkpoint), body)


def numbered(info: dict[str, Any]) -> tuple[int, str, str | None]:
    return info["number"], info["state"], info["checkpoint_id"]


def requests_recorded(service: LocalService) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = service.ask("GET", "/v1/audit", query={"action": "run.request_save"})["items"]
    return found


def test_a_run_that_nothing_trains_has_no_request_and_takes_none(training: Training) -> None:
    assert (present(training)["attempt_id"], *numbered(present(training))) == (None, 0, "none", None)

    training.service.refused("no_attempt", "POST", training.path(routes.RUN_SAVE_REQUEST))


def test_a_request_waits_until_the_next_checkpoint_takes_it_up_and_is_done_when_that_is_committed(
    training: Training,
) -> None:
    attempt = training.start(fresh=True)
    assert numbered(present(training)) == (0, "none", None)

    asked = ask(training)

    assert numbered(asked) == (1, "waiting", None)
    assert (asked["attempt_id"], asked["requested_by"]) == (attempt, "test")
    assert asked["requested_at"] is not None
    assert present(training) == asked
    checkpoint = training.open_all(attempt, save=1, step=1)
    assert numbered(present(training)) == (1, "saving", checkpoint)
    training.finish(checkpoint, training.pack_all(1))
    assert numbered(present(training)) == (1, "done", checkpoint)
    training.save(attempt, save=2, step=2)
    assert numbered(present(training)) == (1, "done", checkpoint)


def test_a_deleted_checkpoint_has_fulfilled_its_request_all_the_same(training: Training) -> None:
    attempt = training.start(fresh=True)
    ask(training)
    checkpoint = training.save(attempt, save=1, step=1)
    version = training.info(checkpoint)["version"]

    training.change("DELETE", routes.CHECKPOINT, checkpoint, version)

    assert numbered(present(training)) == (1, "done", checkpoint)


@pytest.mark.parametrize("query", [{}, {"number": 1}])
def test_asking_again_while_a_request_waits_is_the_same_request_also_at_once(
    training: Training, query: dict[str, int]
) -> None:
    training.start(fresh=True)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: ask(training, **query), range(24)))

    assert [answer for answer in answers if answer != answers[0]] == []
    assert numbered(answers[0]) == (1, "waiting", None)
    (entry,) = requests_recorded(training.service)
    assert entry["detail"] == {"run": "run", "attempt": answers[0]["attempt_id"], "number": 1}


def test_asking_while_a_checkpoint_is_open_is_a_new_request_for_the_next_one(training: Training) -> None:
    attempt = training.start(fresh=True)
    ask(training)
    older = training.open_all(attempt, save=1, step=1)

    assert numbered(ask(training)) == (2, "waiting", None)

    training.open_all(attempt, save=1, step=1)  # its ranks open again: no other checkpoint
    training.finish(older, training.pack_all(1))
    assert numbered(present(training)) == (2, "waiting", None)
    newer = training.save(attempt, save=2, step=2)
    assert numbered(present(training)) == (2, "done", newer)


def test_a_request_that_is_sent_again_after_a_checkpoint_took_it_up_is_the_same_one(training: Training) -> None:
    attempt = training.start(fresh=True)
    assert numbered(ask(training, number=1)) == (1, "waiting", None)
    checkpoint = training.open_all(attempt, save=1, step=1)

    assert numbered(ask(training, number=1)) == (1, "saving", checkpoint)

    training.finish(checkpoint, training.pack_all(1))
    assert numbered(ask(training, number=1)) == (1, "done", checkpoint)
    assert len(requests_recorded(training.service)) == 1
    assert numbered(ask(training, number=2)) == (2, "waiting", None)
    assert numbered(ask(training, number=1)) == (2, "waiting", None), "what waits is younger"
    assert len(requests_recorded(training.service)) == 2


def test_a_request_for_after_a_save_that_is_then_aborted_is_one_of_its_own(training: Training) -> None:
    """Or it would be the one that waits again, and sent again after the next checkpoint took that up, another."""
    attempt = training.start(fresh=True)
    ask(training, number=1)
    abort(training, training.open_all(attempt, save=1, step=1))

    assert numbered(ask(training, number=2)) == (2, "waiting", None)

    checkpoint = training.open_all(attempt, save=2, step=1)
    assert numbered(ask(training, number=2)) == (2, "saving", checkpoint)


def test_a_number_that_an_older_attempt_counted_is_refused_however_often_it_is_sent(training: Training) -> None:
    training.save(training.start(fresh=True), save=1, step=1)
    ask(training, number=1)
    attempt = training.start(fresh=True)
    path = training.path(routes.RUN_SAVE_REQUEST)

    training.service.refused("attempt_fenced", "POST", path, query={"number": 2})

    assert numbered(present(training)) == (0, "none", None)
    ask(training, number=1)
    training.service.refused("attempt_fenced", "POST", path, query={"number": 3})
    checkpoint = training.open_all(attempt, save=1, step=1)
    training.service.refused("attempt_fenced", "POST", path, query={"number": 3})
    assert numbered(present(training)) == (1, "saving", checkpoint)


@pytest.mark.parametrize("number", [0, -1, 1 << 31, "x", "1.5"])
def test_a_malformed_number_is_refused(training: Training, number: int | str) -> None:
    training.start(fresh=True)
    path = training.path(routes.RUN_SAVE_REQUEST)
    training.service.refused("malformed_request", "POST", path, query={"number": number})


def test_a_request_made_while_ranks_open_is_taken_up_by_that_checkpoint_or_waits_for_the_next(
    training: Training,
) -> None:
    attempt = training.start(8, fresh=True)
    for save in range(1, 5):
        opened = threading.Barrier(9)

        def open_one(rank: int, save: int = save, opened: threading.Barrier = opened) -> str:
            opened.wait()
            return str(training.open(attempt, save=save, step=save, rank=rank, world_size=8)["checkpoint_id"])

        def ask_now(opened: threading.Barrier = opened) -> None:
            opened.wait()
            ask(training)

        with ThreadPoolExecutor(9) as pool:
            asking = pool.submit(ask_now)
            (checkpoint,) = set(pool.map(open_one, range(8)))
            asking.result()
        found = present(training)
        assert found["state"] in ("saving", "waiting")
        assert found["checkpoint_id"] == (checkpoint if found["state"] == "saving" else None)


def test_a_request_whose_save_was_aborted_waits_again_and_the_next_checkpoint_takes_it_up(training: Training) -> None:
    attempt = training.start(fresh=True)
    ask(training)
    given_up = training.open_all(attempt, save=1, step=1)

    abort(training, given_up)

    assert numbered(present(training)) == (1, "waiting", given_up)
    assert numbered(ask(training)) == (1, "waiting", given_up)
    assert len(requests_recorded(training.service)) == 1
    second = training.save(attempt, save=2, step=1)
    assert numbered(present(training)) == (1, "done", second)


def test_opening_takes_as_many_statements_for_a_request_as_for_any_number_of_ranks(training: Training) -> None:
    attempt = training.start(4, fresh=True)

    def statements(save: int, rank: int) -> int:
        with counted(training.service.database) as fetched:
            training.open(attempt, save=save, step=save, rank=rank, world_size=4)
        return len(fetched.statements)

    training.open(attempt, save=1, step=1, rank=0, world_size=4)
    joining, creating = statements(1, 1), statements(2, 0)
    ask(training)

    assert statements(3, 0) == creating + 1, "one update of the attempt that takes it up"
    assert statements(3, 1) == joining
    assert statements(4, 0) == creating


def test_a_poll_is_answered_at_once_with_a_number_it_does_not_know_and_else_when_somebody_asks(
    training: Training,
) -> None:
    attempt = training.start(fresh=True)
    assert numbered(poll(training, attempt)) == (0, "none", None)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(poll, training, attempt, known=0, wait_seconds=25)
        wait_until_polled(training, attempt)
        asked = ask(training)
        assert waiting.result(20) == asked
    assert poll(training, attempt, known=0, wait_seconds=25) == asked
    assert poll(training, attempt, known=1, wait_seconds=0.2) == asked, "nothing new"


def wait_until_polled(training: Training, attempt: str) -> None:
    wait_until(lambda: f"save-request:{attempt}" in training.service.context.board._async_waiters, seconds=20)


def test_a_poll_tells_a_fenced_attempt_and_one_of_a_deleted_run_to_stop(training: Training) -> None:
    old = training.start(fresh=True)
    ask(training)
    new = training.start(fresh=True)
    training.service.refused("attempt_fenced", "GET", poll_path(old), query={"known": 1, "wait_seconds": 25})
    assert numbered(present(training)) == (0, "none", None), "the request was about what the old attempt trained"
    assert present(training)["attempt_id"] == new
    run = training.service.ask("GET", training.path(routes.RUN))
    training.service.ask(
        "DELETE",
        routes.path(routes.RUN_BY_ID, run=run["id"]),
        headers={"if-match": f'"{run["version"]}"'},
        query={"force": "true"},
    )
    training.service.refused("run_deleted", "GET", poll_path(new))
    training.service.refused("unknown_run", "POST", training.path(routes.RUN_SAVE_REQUEST))


def test_a_request_to_an_attempt_that_is_fenced_meanwhile_ends_its_poll(training: Training) -> None:
    old = training.start(fresh=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(training.service.send, "GET", poll_path(old), query={"wait_seconds": 25})
        wait_until_polled(training, old)
        training.start(fresh=True)
        training.service.context.board.notify(f"save-request:{old}")
        assert waiting.result(20).json()["code"] == "attempt_fenced"


@pytest.mark.parametrize("query", [{"known": -1}, {"wait_seconds": 31}, {"wait_seconds": "nan"}, {"known": "x"}])
def test_a_malformed_poll_is_refused(training: Training, query: dict[str, Any]) -> None:
    training.service.refused("malformed_request", "GET", poll_path(training.start(fresh=True)), query=query)


def test_asking_needs_a_token_that_may_write_to_the_run_and_tells_others_nothing(training: Training) -> None:
    attempt = training.start(fresh=True)
    Training(training.service, run="other")
    Training(training.service, project="elsewhere", run="run")
    admin = first_admin(training.service)
    reader, stranger = admin.make("read"), admin.make("write", projects=["elsewhere"])
    of_run, of_other = admin.mint(run="run"), admin.mint(run="other")
    path = training.path(routes.RUN_SAVE_REQUEST)

    reader.refused("scope_too_narrow", "POST", path)
    assert reader.ask("GET", path)["state"] == "none"
    for token, code in ((stranger, "unknown_project"), (of_other, "unknown_run")):
        token.refused(code, "POST", path)
        token.refused(code, "GET", path)
        token.refused("unknown_attempt", "GET", poll_path(attempt))
    assert of_run.ask("POST", path)["number"] == 1
    assert of_run.ask("GET", poll_path(attempt))["requested_by"] == of_run.info["name"]
    training.service.refused("unknown_attempt", "GET", poll_path("att_" + "0" * 32))
