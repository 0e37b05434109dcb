"""What deleting a checkpoint would mean: what goes, what `latest` would answer, and who stands on it."""

from __future__ import annotations

from typing import Any

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def impact(training: Training, checkpoint: str) -> dict[str, Any]:
    return training.service.ask("GET", routes.path(routes.IMPACT, checkpoint=checkpoint))


def test_the_latest_names_what_would_be_latest_without_it(training: Training) -> None:
    attempt = training.start()
    first, second = (training.save(attempt, save=save, step=save) for save in (1, 2))

    found = impact(training, second)

    assert found == {
        "checkpoint_id": second,
        "freed_bytes": 64,
        "restorable_seconds": training.service.settings.deleted_keep_seconds,
        "is_latest": True,
        "latest_after": found["latest_after"],
        "resumed_by": [],
        "children": 0,
        "refused_because": None,
    }
    assert found["latest_after"]["id"] == first
    training.change("DELETE", routes.CHECKPOINT, second)
    assert training.latest_id() == first
    assert impact(training, first)["latest_after"] is None


def test_an_older_one_leaves_the_latest_alone_and_names_its_children_and_who_resumed_from_it(
    training: Training,
) -> None:
    attempt = training.start()
    first, second = (training.save(attempt, save=save, step=save) for save in (1, 2))
    rollback = training.start(checkpoint_id=first)
    third = training.save(rollback, save=1, step=2)

    found = impact(training, first)

    assert (found["is_latest"], found["latest_after"]["id"]) == (False, third)
    assert found["resumed_by"] == [rollback]
    assert found["children"] == 2
    off_line = impact(training, second)
    assert (off_line["is_latest"], off_line["latest_after"]["id"], off_line["children"]) == (False, third, 0)


def test_bytes_that_another_checkpoint_names_are_not_freed(training: Training) -> None:
    packed = training.pack_all(1)
    first = training.save(training.start(), save=1, step=1, packed=packed)
    training.save(training.start(), save=1, step=1, packed=packed)

    assert impact(training, first)["freed_bytes"] == 0


def test_a_pinned_one_says_why_it_would_be_refused(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    pinned = {"if-match": f'"{training.info(saved)["version"]}"'}
    path = routes.path(routes.PIN, checkpoint=saved)
    training.service.ask("PUT", path, {"reason": "<b>the paper</b>"}, headers=pinned)

    assert "<b>the paper</b>" in impact(training, saved)["refused_because"]


def test_a_jobs_token_is_not_told_what_other_runs_share(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    path = routes.path(routes.IMPACT, checkpoint=saved)
    admin = first_admin(training.service)

    admin.mint().refused("scope_too_narrow", "GET", path)
    Training(training.service, run="beside")
    admin.mint("beside").refused("unknown_checkpoint", "GET", path)
    bound = {"authorization": f"Bearer {training.service.new_token(Scope.READ, project='project')}"}
    assert training.service.ask("GET", path, headers=bound)["is_latest"]


def test_while_the_freed_bytes_are_summed_up_all_turns_of_values_and_differences_are_free(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summing them up reads what every manifest of the project names: minutes, in a large one."""
    saved = training.save(training.start(), save=1, step=1)
    turns = training.service.control.turns

    def sum_up(*_: Any) -> int:
        with turns.turn(), turns.turn():
            return 7

    monkeypatch.setattr("shardkeep_service.checkpoints.impact.freed_bytes", sum_up)

    assert impact(training, saved)["freed_bytes"] == 7
