"""Deleting, restoring and pinning carry the version they saw; repeating one changes nothing."""

from __future__ import annotations

import pytest

from shardkeep.protocol import routes
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def _send(
    training: Training, method: str, template: str, checkpoint: str, version: int, attempt: str | None = None
) -> str:
    headers = {"if-match": f'"{version}"'}
    if attempt is not None:
        headers[routes.ATTEMPT_HEADER] = attempt
    answer = training.service.send(method, routes.path(template, checkpoint=checkpoint), headers=headers)
    document = answer.json()
    return str(document["state"] if answer.is_success else document["code"])


def test_deleted_is_not_latest_not_readable_and_restorable(training: Training) -> None:
    attempt = training.start()
    first, second = training.save(attempt, save=1, step=1), training.save(attempt, save=2, step=2)

    deleted = training.change("DELETE", routes.CHECKPOINT, second)

    assert (deleted["state"], deleted["deleted_at"] is not None) == ("deleted", True)
    assert training.latest_id() == first
    path = routes.path(routes.TENSORS, checkpoint=second)
    assert training.service.refused("checkpoint_not_committed", "GET", path)["state"] == "deleted"
    restored = training.change("POST", routes.RESTORE, second)
    assert (restored["state"], restored["deleted_at"]) == ("committed", None)
    assert training.latest_id() == second
    assert training.load(second).shape == (4, 4)


def test_E164_a_repeated_transition_is_answered_with_the_present_state(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    version = training.info(saved)["version"]

    assert _send(training, "DELETE", routes.CHECKPOINT, saved, version) == "deleted"
    assert _send(training, "DELETE", routes.CHECKPOINT, saved, version) == "deleted"
    assert _send(training, "DELETE", routes.CHECKPOINT, saved, version + 1) == "deleted"
    assert training.info(saved)["version"] == version + 1
    assert _send(training, "POST", routes.RESTORE, saved, version + 1) == "committed"
    assert _send(training, "POST", routes.RESTORE, saved, version + 1) == "committed"


def test_a_delete_that_is_repeated_after_a_restore_does_not_delete_again(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    version = training.info(saved)["version"]
    _send(training, "DELETE", routes.CHECKPOINT, saved, version)
    _send(training, "POST", routes.RESTORE, saved, version + 1)

    assert _send(training, "DELETE", routes.CHECKPOINT, saved, version) == "version_changed"
    assert training.latest_id() == saved


def test_a_pinned_checkpoint_is_not_deleted_until_it_is_unpinned(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    path, seen = routes.path(routes.PIN, checkpoint=saved), training.info(saved)["version"]
    headers = {"if-match": f'"{seen}"'}

    pinned = training.service.ask("PUT", path, {"reason": "paper"}, headers=headers)
    again = training.service.ask("PUT", path, {"reason": "paper"}, headers=headers)

    assert (pinned["pinned"], pinned["pin_reason"], pinned["version"]) == (True, "paper", seen + 1)
    assert again == pinned
    assert _send(training, "DELETE", routes.CHECKPOINT, saved, seen + 1) == "checkpoint_pinned"
    training.service.ask("DELETE", path, headers={"if-match": f'"{seen + 1}"'})
    training.service.ask("DELETE", path, headers={"if-match": f'"{seen + 1}"'})
    assert _send(training, "DELETE", routes.CHECKPOINT, saved, seen + 2) == "deleted"


@pytest.mark.parametrize(
    ("method", "template"),
    [
        ("DELETE", routes.CHECKPOINT),
        ("POST", routes.RESTORE),
        ("PUT", routes.PIN),
        ("DELETE", routes.PIN),
    ],
)
def test_every_transition_needs_the_version_and_obeys_the_fence(training: Training, method: str, template: str) -> None:
    attempt = training.start()
    saved = training.save(attempt, save=1, step=1)
    other = Training(training.service, run="other").start()
    path = routes.path(template, checkpoint=saved)
    version = training.info(saved)["version"]

    training.service.refused("version_required", "POST" if method == "POST" else method, path)
    for etag in ('"99"', "*", '"x"', 'W/"3"'):
        done = training.service.send(method, path, headers={"if-match": etag}).json()
        assert done["code"] == "version_changed", (etag, done)
    assert _send(training, method, template, saved, version, other) == "unknown_attempt"
    training.begin()
    assert _send(training, method, template, saved, version, attempt) == "attempt_fenced"
    assert training.info(saved)["version"] == version


def test_only_what_was_committed_can_be_deleted_pinned_or_restored(training: Training) -> None:
    open_one = training.open_all(training.start(), save=1, step=1)
    version = training.info(open_one)["version"]

    for method, template in (("DELETE", routes.CHECKPOINT), ("POST", routes.RESTORE), ("PUT", routes.PIN)):
        assert _send(training, method, template, open_one, version) == "checkpoint_not_committed"


def test_a_restore_that_would_give_an_attempt_two_checkpoints_of_one_step_is_refused(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=10)
    training.change("DELETE", routes.CHECKPOINT, first)
    second = training.save(attempt, save=2, step=10)

    version = training.info(first)["version"]
    assert _send(training, "POST", routes.RESTORE, first, version) == "step_already_committed"
    training.change("DELETE", routes.CHECKPOINT, second)
    assert _send(training, "POST", routes.RESTORE, first, version) == "committed"


def test_the_parent_of_an_open_checkpoint_may_be_deleted_and_the_child_still_commits(training: Training) -> None:
    attempt = training.start()
    parent = training.save(attempt, save=1, step=1)
    child = training.open_all(attempt, save=2, step=2)

    training.change("DELETE", routes.CHECKPOINT, parent)

    assert training.finish(child, training.pack_all(2))["state"] == "committed"
    assert training.load(child).shape == (4, 4)


def test_the_version_is_the_etag(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)

    answer = training.service.send("GET", routes.path(routes.CHECKPOINT, checkpoint=saved))

    assert answer.headers["etag"] == f'"{answer.json()["version"]}"'
