"""What other projects' retention lost, tried whole here: see the ids of the reports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shardkeep.protocol import routes
from shardkeep_service.catalogue.commit_records import write_commit_records
from shardkeep_service.checkpoints.expiry import expire_checkpoints
from shardkeep_service.garbage_collection.collector import steps
from shardkeep_service.retention.applying import apply_policies
from shardkeep_service.worker.loop import Turn
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES

DAY = 86_400


def keep(training: Training, last: int, **more: Any) -> None:
    training.service.ask("PUT", training.path(routes.RUN_RETENTION), {"keep_last": last, **more})


def apply(training: Training) -> None:
    apply_policies(training.service.context, Turn())


def collect(training: Training) -> None:
    """Long enough for whatever was deleted to be gone."""
    for _ in range(3):
        training.service.advance(8 * DAY)
        expire_checkpoints(training.service.context)
        write_commit_records(training.service.context)
        for _ in steps(training.service.context):
            pass


def committed(training: Training) -> list[int]:
    page = training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS), query={"state": "committed"})
    return sorted(item["step"] for item in page["items"])


def save_each(training: Training, attempt: str, *steps: int, first_save: int = 1) -> dict[int, str]:
    """Saves these steps, a policy being applied after each commit, as a worker that is always quick."""
    saved = {}
    for save, step in enumerate(steps, start=first_save):
        saved[step] = training.save(attempt, save=save, step=step)
        apply(training)
    return saved


def latest_step(training: Training) -> int:
    checkpoint = training.latest()["checkpoint"]
    assert training.load(checkpoint["id"]).shape == (4, 4)
    return int(checkpoint["step"])


def test_E06_the_good_one_goes_only_after_the_next_is_committed(training: Training) -> None:
    keep(training, 1)
    attempt = training.start()
    first = training.save(attempt, save=1, step=100)
    second = training.open_all(attempt, save=2, step=200)
    packed = training.pack_all(200)
    training.upload(second, 0, packed[0])
    training.hand_in(second, 0, packed[0])
    apply(training)  # rank 1's upload is slow, and its trainer is killed now
    training.service.advance(10_000)
    expire_checkpoints(training.service.context)
    apply(training)
    collect(training)

    assert training.info(second)["state"] == "aborted"
    assert latest_step(training) == 100
    assert training.info(first)["state"] == "committed"
    again = training.start()
    third = training.open_all(again, save=1, step=200)
    apply(training)
    assert committed(training) == [100]
    training.finish(third, packed)
    training.start()  # a job that does not need step 100 any more
    apply(training)
    assert committed(training) == [200]


def test_E81_a_clock_that_goes_back_changes_no_order(training: Training) -> None:
    keep(training, 3)
    attempt = training.start()
    save_each(training, attempt, 200, 400, 600, 800)
    training.service.advance(-3600)
    save_each(training, attempt, 1000, first_save=5)

    assert committed(training) == [600, 800, 1000]
    assert latest_step(training) == 1000


def test_E82_the_pinned_best_and_the_newest_stay(training: Training) -> None:
    keep(training, 1)
    attempt = training.start()
    best = training.save(attempt, save=1, step=100)
    training.change("PUT", routes.PIN, best)
    save_each(training, attempt, 200, 300, first_save=2)

    assert committed(training) == [100, 300]
    assert training.load(best).shape == (4, 4)


def test_E84_the_just_committed_of_a_new_line_is_no_candidate(training: Training) -> None:
    keep(training, 3, off_line_seconds=0)
    save_each(training, training.start(), 500, 600, 700)
    fresh = training.start(fresh=True)
    save_each(training, fresh, 100)

    assert latest_step(training) == 100
    assert 100 in committed(training)


def test_E84_a_rollback_starts_a_line_of_its_own(training: Training) -> None:
    saved = save_each(training, training.start(), 300, 500, 700)
    keep(training, 3)
    rolled_back = training.begin()
    training.decide(rolled_back, checkpoint_id=saved[300])
    save_each(training, rolled_back, 310)

    assert latest_step(training) == 310
    assert committed(training) == [300, 310, 500, 700]  # the old line stays for its time
    training.service.advance(8 * DAY)
    apply(training)
    assert committed(training) == [300, 310]


def test_E85_pruning_waits_for_the_commit_and_a_stale_higher_step_holds_no_place(training: Training) -> None:
    saved = save_each(training, training.start(), 100, 5000)
    branch = training.begin()
    training.decide(branch, checkpoint_id=saved[100])
    save_each(training, branch, 200)
    keep(training, 1, off_line_seconds=0)
    failing = training.open_all(branch, save=2, step=400)
    apply(training)
    body = {"rank": 0, "reason": "out of memory"}
    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=failing), body)
    apply(training)

    assert latest_step(training) == 200
    assert committed(training) == [100, 200]  # 100: the attempt resumed from it; 5000 is gone
    training.service.refused("malformed_request", "PUT", training.path(routes.RUN_RETENTION), {"keep_last": 0})
    assert latest_step(training) == 200


def test_E87_a_runs_policy_never_touches_another_run_and_a_resume_source_stays(training: Training) -> None:
    source, other = training, Training(training.service, run="other")
    saved = source.save(source.start(), save=1, step=40)
    keep(other, 1)
    resumed = source.start()
    keep(source, 1)
    other_attempt = other.start()
    save_each(other, other_attempt, 50, 60)
    save_each(source, resumed, 45, 50)
    collect(training)

    assert source.load(saved).shape == (4, 4)
    assert committed(source) == [40, 50]
    assert committed(other) == [60]


def test_E88_an_unfinished_save_counts_for_nothing(training: Training) -> None:
    keep(training, 1)
    attempt = training.start()
    slow = training.open_all(attempt, save=2, step=1500)
    training.upload(slow, 0, training.pack_all(1500)[0])
    training.save(attempt, save=1, step=1000)
    apply(training)
    training.service.advance(10_000)
    expire_checkpoints(training.service.context)
    apply(training)
    collect(training)

    assert training.info(slow)["state"] == "aborted"
    assert latest_step(training) == 1000


def test_E90_four_ranks_delete_one_at_once_and_twice_and_during_a_load(training: Training) -> None:
    attempt = training.start(world_size=4)
    packed = training.pack_all(10, world_size=4)
    saved = training.save(attempt, save=1, step=10, world_size=4, packed=packed)
    training.save(attempt, save=2, step=20, world_size=4)
    version = training.info(saved)["version"]
    path, headers = routes.path(routes.CHECKPOINT, checkpoint=saved), {"if-match": f'"{version}"'}
    digests = [ref.digest for one in packed for ref, _ in one.chunks]
    chunk = routes.path(routes.CHUNK, checkpoint=saved, digest=digests[0])
    assert training.service.send("GET", chunk).is_success  # a load has begun

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: training.service.send("DELETE", path, headers=headers), range(4)))
    again = training.service.send("DELETE", path, headers=headers)

    assert [answer.status for answer in (*answers, again)] == [200] * 5
    assert {answer.json()["state"] for answer in (*answers, again)} == {"deleted"}
    for digest in digests[1:]:
        piece = training.service.send("GET", routes.path(routes.CHUNK, checkpoint=saved, digest=digest))
        assert piece.is_success or piece.json()["code"] == "checkpoint_not_committed"


def test_E91_what_a_deleted_run_of_the_same_name_left_takes_no_place(training: Training) -> None:
    training.save(training.start(), save=1, step=1000)
    old = training.service.ask("GET", training.path(routes.RUN))
    path = routes.path(routes.RUN_BY_ID, run=old["id"])
    training.service.ask("DELETE", path, headers={"if-match": f'"{old["version"]}"'})
    new = Training(training.service)
    keep(new, 1)
    save_each(new, new.start(), 10)
    collect(training)

    assert latest_step(new) == 10
    assert committed(new) == [10]


def test_E171_two_runs_mark_their_best_at_the_same_time_and_each_loads_its_own(training: Training) -> None:
    one, two = training, Training(training.service, run="run-2")
    saved = {}
    for number, run in enumerate((one, two), start=1):
        attempt = run.start()
        saved[run.run] = [run.save(attempt, save=save, step=10 * number + save) for save in (1, 2)]

    def mark(run: Training) -> None:
        for checkpoint in saved[run.run]:
            path = routes.path(routes.TAG, checkpoint=checkpoint, tag="best")
            run.service.ask("PUT", path, query={"only": "true"})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(mark, (one, two)))

    for run in (one, two):
        page = run.service.ask("GET", run.path(routes.RUN_CHECKPOINTS), query={"tag": "best"})
        [best] = page["items"]
        assert best["id"] == saved[run.run][1]
        assert run.load(best["id"])[0, 0] == 1000 * best["step"]
