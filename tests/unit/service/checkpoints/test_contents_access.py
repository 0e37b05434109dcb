"""What is in a checkpoint is told of readable ones only, and to those who may see them."""

from __future__ import annotations

from typing import Final

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.checkpoints.turns import Turns
from shardkeep_service.garbage_collection.collector import steps
from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES

READING: Final = (routes.TENSORS, routes.SLICES, routes.VALUES, routes.IMPACT)


def _path(template: str, checkpoint: str) -> str:
    return routes.path(template, checkpoint=checkpoint, other=checkpoint) + "?tensor=model.weight"


def test_a_token_of_another_project_or_run_finds_nothing(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    Training(training.service, project="other")
    Training(training.service, run="beside")
    bound = {"authorization": f"Bearer {training.service.new_token(Scope.ADMIN, project='other')}"}
    job = first_admin(training.service).mint("beside")

    for template in (*READING, routes.RANKS, routes.DIFFERENCES):
        training.service.refused("unknown_checkpoint", "GET", _path(template, saved), headers=bound)
        job.refused("unknown_checkpoint", "GET", _path(template, saved))


def test_what_is_not_committed_is_refused_with_its_state(training: Training) -> None:
    attempt = training.start()
    opened = training.open_all(attempt, save=1, step=1)
    for template in (*READING, routes.DIFFERENCES):
        problem = training.service.refused("checkpoint_not_committed", "GET", _path(template, opened))
        assert (problem["state"], problem["ranks"]) == ("open", [0, 1])

    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=opened), {"rank": 0, "reason": "no"})
    for template in (*READING, routes.DIFFERENCES):
        problem = training.service.refused("checkpoint_not_committed", "GET", _path(template, opened))
        assert problem["state"] == "aborted"


def test_of_a_deleted_or_purged_one_nothing_is_told_but_its_ranks(training: Training) -> None:
    attempt = training.start()
    saved = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, saved)

    for state in ("deleted", "purged"):
        for template in (*READING, routes.DIFFERENCES):
            problem = training.service.refused("checkpoint_not_committed", "GET", _path(template, saved))
            assert problem["state"] == state
        assert training.service.send("GET", _path(routes.RANKS, saved)).is_success
        training.service.advance(training.service.settings.deleted_keep_seconds + 86_400)
        for _ in steps(training.service.context):
            pass


@pytest.mark.parametrize("odd", ["..", "../x", "%2e%2e%2f", "a/b", "a\\b", "nul\x00", "x" * 3000, "é", "' OR 1=1"])
def test_E186_an_odd_id_is_an_unknown_checkpoint(training: Training, odd: str) -> None:
    saved = training.save(training.start(1), save=1, step=1, world_size=1)

    for template in (*READING, routes.RANKS):
        answer = training.service.send("GET", _path(template, odd))
        assert answer.status in (400, 404), answer.content
    for one, two in ((saved, odd), (odd, saved)):
        path = routes.path(routes.DIFFERENCES, checkpoint=one, other=two)
        assert training.service.send("GET", path).status in (400, 404)


def test_what_reads_much_is_refused_while_many_ask(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = training.save(training.start(), save=1, step=1)
    turns, impact_turns = Turns(limit=1, waiting=0), Turns(limit=1, waiting=0)
    monkeypatch.setattr(training.service.control, "turns", turns)
    monkeypatch.setattr(training.service.control, "impact_turns", impact_turns)

    for template, taken in ((routes.VALUES, turns), (routes.DIFFERENCES, turns), (routes.IMPACT, impact_turns)):
        with taken.turn():
            problem = training.service.refused("busy", "GET", _path(template, saved))
        assert (problem["status"], problem["retryable"]) == (503, True)
        assert training.service.send("GET", _path(template, saved)).is_success
    with turns.turn():  # what was compared already is told all the same
        assert training.service.send("GET", _path(routes.DIFFERENCES, saved)).is_success


def test_tensors_are_found_by_any_part_of_a_name_in_any_case(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    path = routes.path(routes.TENSORS, checkpoint=saved)

    def found(**query: str) -> list[str]:
        return [item["name"] for item in training.service.ask("GET", path, query=query)["items"]]

    assert found(search="WEIGH") == found(search="l.w") == found(prefix="model", search="t") == ["model.weight"]
    assert found(search="bias") == found(prefix="opt", search="weight") == []
    training.service.refused("malformed_request", "GET", path, query={"search": "x" * 4097})
