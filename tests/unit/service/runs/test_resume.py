"""Resuming: one recorded decision per attempt, from the line, with reasons for what is passed over."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from shardkeep.format.load_plan import LoadRequest, encode_load_request
from shardkeep.protocol import routes
from shardkeep_service.checkpoints.models import Checkpoint
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.fetched_rows import counted
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def _resume_path(attempt: str) -> str:
    return routes.path(routes.RESUME, attempt=attempt)


def test_a_run_that_never_opened_a_checkpoint_starts_fresh(training: Training) -> None:
    decision = training.decide(training.begin())

    assert decision == {"attempt_id": decision["attempt_id"], "fresh": True, "checkpoint": None, "passed_over": []}


def test_E01_an_incomplete_newer_checkpoint_is_passed_over_with_its_missing_ranks(training: Training) -> None:
    attempt = training.start()
    whole = training.save(attempt, save=1, step=100)
    partial = training.open_all(attempt, save=2, step=200)
    packed = training.pack_all(200)
    training.upload(partial, 0, packed[0])
    training.upload(partial, 1, packed[1])
    training.hand_in(partial, 0, packed[0])
    before = training.latest()

    decision = training.decide(training.begin())

    assert before["checkpoint"]["id"] == whole
    assert before["passed_over"][0]["missing_ranks"] == [1]
    assert before["passed_over"][0]["code"] == "checkpoint_not_committed"
    assert decision["checkpoint"]["id"] == whole
    [over] = decision["passed_over"]
    assert (over["checkpoint_id"], over["code"], over["missing_ranks"]) == (partial, "superseded", [1])
    request = encode_load_request(LoadRequest.whole(["model.weight"]))
    path = routes.path(routes.LOAD_PLAN, checkpoint=partial)
    assert training.service.refused("checkpoint_not_committed", "POST", path, content=request)["ranks"] == [1]


def test_E09_a_run_with_only_an_incomplete_checkpoint_refuses_to_start_over_by_itself(training: Training) -> None:
    incomplete = training.open_all(training.start(), save=1, step=10)
    attempt = training.begin()

    problem = training.service.refused("no_usable_checkpoint", "POST", _resume_path(attempt), {})

    assert [over["checkpoint_id"] for over in problem["passed_over"]] == [incomplete]
    assert training.decide(attempt, fresh=True)["fresh"] is True


def test_the_decision_is_the_same_for_ranks_that_ask_after_a_delete(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=10)
    attempt = training.begin()
    first = training.decide(attempt)

    training.change("DELETE", routes.CHECKPOINT, saved)
    late = training.decide(attempt)

    assert late["checkpoint"]["id"] == first["checkpoint"]["id"] == saved
    assert late["passed_over"] == first["passed_over"]
    assert training.load(saved).shape == (4, 4)


def test_what_was_deleted_is_not_readable_once_no_current_attempt_resumed_from_it(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=10)
    training.decide(training.begin())
    training.change("DELETE", routes.CHECKPOINT, saved)

    training.begin()

    path = routes.path(routes.TENSORS, checkpoint=saved)
    assert training.service.refused("checkpoint_not_committed", "GET", path)["state"] == "deleted"


def test_the_decision_stands_whatever_commits_after_it(training: Training) -> None:
    first = training.save(training.start(), save=1, step=10)
    attempt = training.begin()
    training.decide(attempt)

    training.save(attempt, save=1, step=20)

    assert training.decide(attempt)["checkpoint"]["id"] == first


def test_all_ranks_that_ask_at_once_get_one_decision(training: Training) -> None:
    training.save(training.start(), save=1, step=10)
    attempt = training.begin()

    with ThreadPoolExecutor(8) as pool:
        decisions = list(pool.map(lambda _: training.decide(attempt), range(24)))

    assert all(decision == decisions[0] for decision in decisions)


def test_asking_for_another_checkpoint_than_decided_is_refused(training: Training) -> None:
    old = training.start()
    first, second = training.save(old, save=1, step=10), training.save(old, save=2, step=20)
    attempt = training.begin()
    training.decide(attempt, checkpoint_id=first)

    service = training.service
    problem = service.refused("resume_decided_otherwise", "POST", _resume_path(attempt), {"checkpoint_id": second})
    service.refused("resume_decided_otherwise", "POST", _resume_path(attempt), {"fresh": True})

    assert first in problem["detail"]
    assert second in problem["detail"]
    assert training.decide(attempt, checkpoint_id=first)["checkpoint"]["id"] == first


def test_both_a_checkpoint_and_fresh_are_refused(training: Training) -> None:
    body = {"checkpoint_id": "ckp_" + "0" * 32, "fresh": True}

    training.service.refused("malformed_request", "POST", _resume_path(training.begin()), body)


def test_a_rollback_leaves_the_newer_ones_off_the_line_and_loadable_by_id(training: Training) -> None:
    old = training.start()
    first, second = training.save(old, save=1, step=100), training.save(old, save=2, step=200)
    rollback = training.begin()
    decision = training.decide(rollback, checkpoint_id=first)

    assert training.latest_id() == first
    assert [(over["checkpoint_id"], over["code"]) for over in decision["passed_over"]] == [(second, "not_asked_for")]
    assert [(over["checkpoint_id"], over["code"]) for over in training.latest()["passed_over"]] == [
        (second, "off_line")
    ]
    again = training.save(rollback, save=1, step=200)
    assert training.latest_id() == again
    assert training.info(second)["on_line"] is False
    assert training.load(second).shape == (4, 4)
    after = training.decide(training.begin())
    assert after["checkpoint"]["id"] == again
    assert training.decide(training.begin(), checkpoint_id=second)["checkpoint"]["id"] == second


def test_a_fresh_attempt_has_a_line_of_its_own(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=10)
    attempt = training.start(fresh=True)

    assert training.latest_id() is None
    assert training.info(saved)["on_line"] is False
    own = training.save(attempt, save=1, step=10)
    assert training.latest_id() == own


def test_until_the_current_attempt_decides_latest_is_what_it_would_resume_from(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=10)

    attempt = training.begin()

    assert training.latest_id() == saved == training.decide(attempt)["checkpoint"]["id"]


def test_reasons_name_deleted_quarantined_and_aborted(training: Training) -> None:
    attempt = training.start()
    kept, deleted, quarantined = (training.save(attempt, save=save, step=save) for save in (1, 2, 3))
    aborted = training.open_all(attempt, save=4, step=4)
    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=aborted), {"rank": 1, "reason": "out of memory"})
    training.change("DELETE", routes.CHECKPOINT, deleted)
    with training.service.database.write() as session:
        session.get_one(Checkpoint, quarantined).quarantined = True

    decision = training.decide(training.begin())

    assert decision["checkpoint"]["id"] == kept
    found = [(over["checkpoint_id"], over["code"]) for over in decision["passed_over"]]
    assert found == [(aborted, "aborted_by_client"), (quarantined, "quarantined"), (deleted, "deleted")]
    assert "out of memory" in decision["passed_over"][0]["reason"]


def test_only_a_committed_checkpoint_of_this_run_can_be_asked_for(training: Training) -> None:
    other = Training(training.service, run="other")
    foreign = other.save(other.start(), save=1, step=1)
    open_one = training.open_all(training.start(), save=1, step=1)
    attempt = training.begin()

    service = training.service
    service.refused("unknown_checkpoint", "POST", _resume_path(attempt), {"checkpoint_id": foreign})
    problem = service.refused("checkpoint_not_committed", "POST", _resume_path(attempt), {"checkpoint_id": open_one})
    assert problem["state"] == "aborted"


def test_another_world_size_resumes_from_the_same_checkpoint(training: Training) -> None:
    saved = training.save(training.start(2), save=1, step=10)

    assert training.decide(training.begin(5))["checkpoint"]["id"] == saved


def test_a_fenced_attempt_keeps_its_answer_and_gets_no_new_one(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=10)
    decided = training.begin()
    training.decide(decided)
    undecided = training.begin()
    training.begin()

    assert training.decide(decided)["checkpoint"]["id"] == saved
    training.service.refused("attempt_fenced", "POST", _resume_path(undecided), {})


def test_a_chain_of_hundreds_of_attempts_is_resolved_in_a_fixed_number_of_queries(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=0)
    counts = []
    for length in range(200):
        attempt = training.begin()
        training.decide(attempt)
        if length in (5, 199):
            counts.append(_queries_of_latest(training))
    assert training.latest_id() == saved
    assert counts[0] == counts[1]


def _queries_of_latest(training: Training) -> int:
    with counted(training.service.database) as fetched:
        training.latest()
    assert fetched.statements
    return len(fetched.statements)
