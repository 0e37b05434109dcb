"""Opening: (attempt, save) is the checkpoint, whoever comes first and however often."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

from shardkeep.protocol import routes
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def _path(attempt: str) -> str:
    return routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt)


def test_E172_ranks_that_open_at_random_moments_get_one_checkpoint(training: Training) -> None:
    for _ in range(2):
        attempt = training.start(4, fresh=True)

        def open_late(rank: int, attempt: str = attempt) -> str:
            time.sleep(random.random() * 0.2)
            return str(training.open(attempt, save=1, step=10, rank=rank, world_size=4)["checkpoint_id"])

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(open_late, [0, 1, 2, 3] * 2))) == 1


def test_E164_opening_again_joins_and_opening_with_another_step_is_refused(training: Training) -> None:
    attempt = training.start()
    first = training.open(attempt, save=1, step=10, rank=0)

    assert training.open(attempt, save=1, step=10, rank=0) == first
    body = {"save": 1, "step": 11, "rank": 0, "world_size": 2}
    training.service.refused("step_disagrees", "POST", _path(attempt), body)
    assert len(training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS))["items"]) == 1


def test_E11_ranks_of_one_save_that_say_other_steps_are_told_both(training: Training) -> None:
    attempt = training.start()
    training.open(attempt, save=1, step=500, rank=0)

    body = {"save": 1, "step": 501, "rank": 1, "world_size": 2}
    problem = training.service.refused("step_disagrees", "POST", _path(attempt), body)

    assert "500" in problem["detail"]
    assert "501" in problem["detail"]
    assert training.latest_id() is None


def test_another_world_size_is_refused_naming_both(training: Training) -> None:
    attempt = training.start(2)

    body = {"save": 1, "step": 1, "rank": 0, "world_size": 3}
    problem = training.service.refused("world_size_disagrees", "POST", _path(attempt), body)

    assert "2" in problem["detail"]
    assert "3" in problem["detail"]


def test_a_rank_outside_the_world_is_refused(training: Training) -> None:
    body = {"save": 1, "step": 1, "rank": 2, "world_size": 2}

    training.service.refused("rank_out_of_range", "POST", _path(training.start(2)), body)


def test_opening_before_the_resume_decision_is_refused(training: Training) -> None:
    body = {"save": 1, "step": 1, "rank": 0, "world_size": 2}

    training.service.refused("resume_undecided", "POST", _path(training.begin(2)), body)


def test_a_step_is_committed_once_per_attempt(training: Training) -> None:
    attempt = training.start()
    saved = training.save(attempt, save=1, step=10)

    body = {"save": 2, "step": 10, "rank": 0, "world_size": 2}
    training.service.refused("step_already_committed", "POST", _path(attempt), body)
    again = training.open(attempt, save=1, step=10, rank=0)

    assert (again["checkpoint_id"], again["state"], again["arrived"]) == (saved, "committed", True)


def test_E20_a_step_that_an_earlier_attempt_left_half_saved_is_saved_anew(training: Training) -> None:
    attempt = training.start()
    kept = training.save(attempt, save=1, step=20)
    leftover = training.open_all(attempt, save=2, step=40)
    training.upload(leftover, 0, training.pack_all(40)[0])

    second = training.begin()
    assert training.decide(second)["checkpoint"]["id"] == kept
    again = training.save(second, save=1, step=40)

    assert again != leftover
    assert training.latest_id() == again


def test_the_parent_is_the_last_committed_on_the_line(training: Training) -> None:
    attempt = training.start()
    first, second = training.save(attempt, save=1, step=1), training.save(attempt, save=2, step=2)
    rollback = training.begin()
    training.decide(rollback, checkpoint_id=first)

    assert training.info(second)["parent_id"] == first
    assert training.open(rollback, save=1, step=2, rank=0)["parent_id"] == first


def test_a_batch_decides_about_each_opening_by_itself(training: Training) -> None:
    good, fenced = Training(training.service, run="good"), Training(training.service, run="fenced")
    attempts = {"good": good.start(4), "fenced": fenced.start(4)}
    fenced.begin(4)

    def open_one(item: int) -> str:
        name = "good" if item % 2 else "fenced"
        body = {"save": 1, "step": 1, "rank": item % 4, "world_size": 4}
        answer = training.service.send("POST", _path(attempts[name]), body).json()
        return f"{name}: {answer.get('code', answer.get('state'))}"

    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(open_one, range(64)))

    assert found == {"good: open", "fenced: attempt_fenced"}
