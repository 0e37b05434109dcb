"""Deleting runs and projects: restorable, their names free at once, their jobs told to stop."""

from __future__ import annotations

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.catalogue.commit_records import write_commit_records
from shardkeep_service.garbage_collection.collector import steps
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.fetched_rows import counted
from tests.unit.service.local_service import seen
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def run_path(training: Training, template: str = routes.RUN_BY_ID, run_id: str | None = None) -> str:
    return routes.path(template, run=run_id or training.service.ask("GET", training.path(routes.RUN))["id"])


def test_a_deleted_run_takes_its_checkpoints_along_and_comes_back_with_them(training: Training) -> None:
    attempt = training.start()
    gone_before = training.save(attempt, save=1, step=1)
    kept = [training.save(attempt, save=save, step=save) for save in (2, 3)]
    training.change("DELETE", routes.CHECKPOINT, gone_before)
    path = run_path(training)

    deleted = training.service.ask("DELETE", path, **seen(1))

    assert (deleted["name"], deleted["version"], deleted["latest"]) == ("run", 2, None)
    assert deleted["deleted_at"] is not None
    assert {training.info(one)["state"] for one in kept} == {"deleted"}
    training.service.refused("unknown_run", "GET", training.path(routes.RUN))
    listed = training.service.ask("GET", training.path(routes.RUNS), query={"deleted": "true"})
    assert [item["id"] for item in listed["items"]] == [deleted["id"]]
    assert training.service.ask("GET", training.path(routes.RUNS))["items"] == []
    assert training.info(kept[0])["run"] == "run"

    restored = training.service.ask("POST", f"{path}/restore", **seen(2))
    assert (restored["name"], restored["version"], restored["deleted_at"]) == ("run", 3, None)
    assert training.latest_id() == kept[1]
    assert training.info(gone_before)["state"] == "deleted"
    assert training.load(kept[0]).shape == (4, 4)


def test_a_run_is_deleted_and_restored_by_as_many_statements_however_long_it_is(training: Training) -> None:
    sent: dict[str, list[int]] = {"DELETE": [], "POST": []}
    for run, saves in (("short", 1), ("long", 12)):
        one = Training(training.service, run=run)
        attempt = one.start()
        saved = [one.save(attempt, save=save, step=save) for save in range(1, saves + 1)]
        path = run_path(one)
        versions = [one.info(checkpoint)["version"] for checkpoint in saved]
        for version, (method, target) in enumerate((("DELETE", path), ("POST", f"{path}/restore")), start=1):
            with counted(training.service.database) as fetched:
                training.service.ask(method, target, **seen(version))
            sent[method].append(len(fetched.statements))
        assert [one.info(checkpoint)["version"] for checkpoint in saved] == [version + 2 for version in versions]
        assert one.latest_id() == saved[-1]

    assert {method: len(set(counts)) for method, counts in sent.items()} == {"DELETE": 1, "POST": 1}, sent


def test_repeating_either_changes_nothing_and_a_stale_version_is_refused(training: Training) -> None:
    training.save(training.start(), save=1, step=1)
    path = run_path(training)

    first = training.service.ask("DELETE", path, **seen(1))
    assert training.service.ask("DELETE", path, **seen(1)) == first
    assert training.service.ask("DELETE", path, **seen(2)) == first
    restored = training.service.ask("POST", f"{path}/restore", **seen(2))
    assert training.service.ask("POST", f"{path}/restore", **seen(2)) == restored
    training.service.refused("version_changed", "DELETE", path, **seen(1))
    training.service.refused("version_required", "DELETE", path)
    training.service.refused("unknown_run", "DELETE", routes.path(routes.RUN_BY_ID, run="run_0"), **seen(1))


def test_the_name_is_free_at_once_and_the_old_run_comes_back_under_another(training: Training) -> None:
    old = training.save(training.start(), save=1, step=1000)
    path = run_path(training)
    training.service.ask("DELETE", path, **seen(1))

    again = Training(training.service)
    new = again.save(again.start(), save=1, step=10)

    assert again.latest_id() == new
    training.service.refused("name_taken", "POST", f"{path}/restore", **seen(2))
    restored = training.service.ask("POST", f"{path}/restore", {"name": "old-run"}, **seen(2))
    assert restored["name"] == "old-run"
    assert Training(training.service, run="old-run").latest_id() == old
    assert again.latest_id() == new


def test_a_run_that_is_being_saved_to_is_not_deleted_unless_forced(training: Training) -> None:
    attempt = training.start()
    kept = training.save(attempt, save=1, step=1)
    opened = training.open_all(attempt, save=2, step=2)
    path = run_path(training)

    problem = training.service.refused("run_in_use", "DELETE", path, **seen(1))
    assert problem["checkpoint_id"] == opened
    training.service.ask("DELETE", path, query={"force": "true"}, **seen(1))

    assert training.info(opened)["abort"]["code"] == "run_deleted"
    assert training.info(kept)["state"] == "deleted"
    body = {"save": 3, "step": 3, "rank": 0, "world_size": 2}
    saves = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt)
    assert "stop this job" in training.service.refused("run_deleted", "POST", saves, body)["detail"]
    version = training.info(kept)["version"]
    restore = routes.path(routes.RESTORE, checkpoint=kept)
    training.service.refused("run_deleted", "POST", restore, **seen(version))


def test_a_pinned_checkpoint_keeps_its_run_unless_forced_and_stays_pinned(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)
    training.change("PUT", routes.PIN, saved)
    path = run_path(training)

    training.service.refused("checkpoint_pinned", "DELETE", path, **seen(1))
    training.service.ask("DELETE", path, query={"force": "true"}, **seen(1))
    training.service.ask("POST", f"{path}/restore", **seen(2))

    assert training.info(saved)["pinned"]
    assert training.latest_id() == saved


def test_only_a_token_that_may_delete_deletes_a_run(training: Training) -> None:
    path = run_path(training)
    writer = training.service.new_token(Scope.WRITE, project="project")
    deleter = training.service.new_token(Scope.DELETE, project="project")

    headers = {"if-match": '"1"', "authorization": f"Bearer {writer}"}
    training.service.refused("scope_too_narrow", "DELETE", path, headers=headers)
    training.service.ask("DELETE", path, headers={**headers, "authorization": f"Bearer {deleter}"})


def test_a_deleted_runs_checkpoints_are_purged_also_what_its_last_attempt_resumed_from(training: Training) -> None:
    first = training.save(training.start(), save=1, step=1)
    training.start()
    training.service.ask("DELETE", run_path(training), **seen(1))
    for _ in range(3):
        training.service.advance(8 * 86_400)
        write_commit_records(training.service.context)
        for _ in steps(training.service.context):
            pass

    assert training.info(first)["state"] == "purged"
    assert not [blob for blob in training.service.blob_store.list("") if "/chunks/" in blob.key]


def test_a_deleted_project_takes_its_runs_along_and_frees_its_name(training: Training) -> None:
    one, two = training, Training(training.service, run="two")
    saved = one.save(one.start(), save=1, step=1)
    other = two.save(two.start(), save=1, step=1)
    two_id = training.service.ask("GET", two.path(routes.RUN))["id"]
    training.service.ask("DELETE", run_path(two, run_id=two_id), **seen(1))
    project = training.service.ask("GET", training.path(routes.PROJECT))["id"]
    path = routes.path(routes.PROJECT_BY_ID, project=project)

    deleted = training.service.ask("DELETE", path, **seen(1))
    assert (deleted["name"], deleted["version"]) == ("project", 2)
    assert training.service.ask("DELETE", path, **seen(1)) == deleted
    training.service.refused("unknown_project", "GET", training.path(routes.PROJECT))
    training.service.refused("unknown_project", "GET", routes.path(routes.PROJECT, project=f"~{project}"))
    assert training.info(saved)["state"] == "deleted"
    training.service.refused("run_deleted", "POST", run_path(two, routes.RUN_RESTORE, two_id), **seen(2))
    listed = training.service.ask("GET", routes.PROJECTS, query={"deleted": "true"})
    assert [item["id"] for item in listed["items"]] == [project]

    fresh = Training(training.service)
    fresh.save(fresh.start(), save=1, step=5)
    training.service.refused("name_taken", "POST", f"{path}/restore", **seen(2))
    training.service.ask("POST", f"{path}/restore", {"name": "before"}, **seen(2))

    assert Training(training.service, project="before").latest_id() == saved
    assert training.info(other)["state"] == "deleted"
    training.service.ask("POST", run_path(two, routes.RUN_RESTORE, two_id), **seen(2))
    assert training.info(other)["state"] == "committed"
