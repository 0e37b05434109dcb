"""Policies over HTTP: set, shown, tried out, applied; and what a policy can never delete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import func, select

from shardkeep.protocol import routes
from shardkeep_service.access.models import AuditEntry
from shardkeep_service.access.scopes import Scope
from shardkeep_service.catalogue.state import pause_retention, resume_retention
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.retention.applying import apply_policies
from shardkeep_service.worker.loop import Turn
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import seen
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def set_run(training: Training, **rules: Any) -> dict[str, Any]:
    return training.service.ask("PUT", training.path(routes.RUN_RETENTION), rules)


def apply(training: Training) -> int:
    return apply_policies(training.service.context, Turn())


def states(training: Training) -> dict[int, str]:
    page = training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS))
    return {item["step"]: item["state"] for item in page["items"]}


def save_steps(training: Training, attempt: str, *steps: int, first_save: int = 1) -> list[str]:
    return [training.save(attempt, save=save, step=step) for save, step in enumerate(steps, start=first_save)]


def test_without_a_policy_nothing_is_deleted_and_an_empty_one_is_refused(training: Training) -> None:
    save_steps(training, training.start(), 1, 2, 3)

    assert apply(training) == 0
    training.service.refused("empty_policy", "PUT", training.path(routes.RUN_RETENTION), {})
    training.service.refused("empty_policy", "PUT", training.path(routes.RUN_RETENTION), {"off_line_seconds": 5})
    training.service.refused("malformed_request", "PUT", training.path(routes.RUN_RETENTION), {"keep_last": 0})
    training.service.refused("malformed_request", "PUT", training.path(routes.RUN_RETENTION), {"keep_lats": 3})
    assert set(states(training).values()) == {"committed"}


def test_the_runs_policy_stands_instead_of_its_projects(training: Training) -> None:
    project = training.path(routes.PROJECT_RETENTION)
    other = Training(training.service, run="other")
    training.service.ask("PUT", project, {"keep_last": 1})
    set_run(training, keep_last=2)
    save_steps(training, training.start(), 1, 2, 3)
    save_steps(other, other.start(), 1, 2, 3)

    shown = training.service.ask("GET", training.path(routes.RUN_RETENTION))
    assert shown["in_force"]["run"] == "run"
    assert other.service.ask("GET", other.path(routes.RUN_RETENTION))["in_force"]["run"] is None
    assert apply(training) == 3
    assert states(training) == {1: "deleted", 2: "committed", 3: "committed"}
    assert states(other) == {1: "deleted", 2: "deleted", 3: "committed"}

    training.service.ask("DELETE", training.path(routes.RUN_RETENTION))
    cleared = training.service.ask("DELETE", training.path(routes.RUN_RETENTION))
    assert cleared["policy"] is None
    assert cleared["in_force"]["rules"]["keep_last"] == 1
    training.service.ask("DELETE", project)
    assert training.service.ask("GET", training.path(routes.RUN_RETENTION))["in_force"] is None


def test_a_policy_that_is_not_the_one_that_was_seen_is_neither_replaced_nor_removed(training: Training) -> None:
    training.start()
    for path in (training.path(routes.PROJECT_RETENTION), training.path(routes.RUN_RETENTION)):
        service = training.service
        assert service.ask("GET", path)["version"] == 0
        first = service.ask("PUT", path, {"keep_last": 1}, **seen(0))["version"]
        assert service.send("GET", path).headers["etag"] == f'"{first}"'
        second = service.ask("PUT", path, {"keep_last": 2})["version"]  # of somebody who asks for no version
        assert second > first > 0

        for version in (0, first, second + 1):
            problem = service.refused("version_changed", "PUT", path, {"keep_last": 3}, **seen(version))
            assert problem["version"] == second
            service.refused("version_changed", "DELETE", path, **seen(version))
        again = service.ask("PUT", path, {"keep_last": 2}, **seen(first))  # the answer to it was lost, say
        assert (again["policy"]["rules"]["keep_last"], again["version"]) == (2, second)

        assert service.ask("DELETE", path, **seen(second))["version"] == 0
        assert service.ask("DELETE", path, **seen(second))["version"] == 0
        service.refused("version_changed", "PUT", path, {"keep_last": 2}, **seen(second))


def test_of_changes_to_one_policy_at_the_same_time_one_is_made(training: Training) -> None:
    training.start()
    path = training.path(routes.RUN_RETENTION)
    for version in (0, training.service.ask("PUT", path, {"keep_last": 100})["version"]):
        if version == 0:
            training.service.ask("DELETE", path)

        def change(keep: int, version: int = version) -> int:
            return training.service.send("PUT", path, {"keep_last": keep}, **seen(version)).status

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(change, range(1, 9))) == [200] + [412] * 7


def test_a_dry_run_gives_every_verdict_and_the_exact_bytes_and_deletes_nothing(training: Training) -> None:
    attempt = training.start()
    packed = training.pack_all(1)
    first = training.save(attempt, save=1, step=1, packed=packed)
    second = training.open_all(attempt, save=2, step=2)
    for rank in range(2):  # brings what the first has too, and names its own only
        training.upload(second, rank, packed[rank])
    training.finish(second, training.pack_all(2))
    save_steps(training, attempt, 3, first_save=3)

    plan = training.service.ask("POST", training.path(routes.RUN_RETENTION_PLAN), {"keep_last": 1})

    assert (plan["applied"], plan["kept"], plan["deleted"], plan["not_listed"]) == (False, 1, 2, 0)
    verdicts = {verdict["step"]: verdict for verdict in plan["verdicts"]}
    assert [verdict["step"] for verdict in plan["verdicts"]] == [1, 2, 3]
    assert {code["code"] for code in verdicts[3]["reasons"]} == {"latest", "just_committed", "keep_last"}
    assert verdicts[1]["checkpoint_id"] == first
    with training.service.database.read() as session:
        sizes = dict(session.execute(select(Chunk.digest, Chunk.size_bytes)).all())
    going = {ref.digest for step in (1, 2) for one in training.pack_all(step) for ref, _ in one.chunks}
    assert plan["freed_bytes"] == sum(sizes[digest] for digest in going)
    assert set(states(training).values()) == {"committed"}
    assert training.service.ask("GET", training.path(routes.RUN_RETENTION_PLAN))["verdicts"] == []
    project = training.service.ask("POST", training.path(routes.PROJECT_RETENTION_PLAN), {"keep_last": 2})
    assert (project["kept"], project["deleted"]) == (2, 1)


def test_shared_chunks_are_not_counted_as_freed(training: Training) -> None:
    attempt = training.start()
    packed = training.pack_all(1)
    training.save(attempt, save=1, step=1, packed=packed)
    second = training.start()
    training.save(second, save=1, step=1, packed=packed)

    rules = {"keep_last": 1, "off_line_seconds": 0}
    plan = training.service.ask("POST", training.path(routes.RUN_RETENTION_PLAN), rules)

    assert plan["freed_bytes"] == 0


def test_applying_now_says_what_went_and_leaves_audit_entries(training: Training) -> None:
    first, second, _ = save_steps(training, training.start(), 1, 2, 3)
    set_run(training, keep_last=1)

    done = training.service.ask("POST", training.path(routes.RUN_RETENTION_APPLY))

    assert (done["applied"], [verdict["checkpoint_id"] for verdict in done["verdicts"]]) == (True, [first, second])
    assert training.info(first)["deletion_reason"].startswith("retention: ")
    with training.service.database.read() as session:
        entries = session.scalars(select(AuditEntry).where(AuditEntry.action == "checkpoint.delete")).all()
        assert {entry.target for entry in entries} == {first, second}
    restored = training.change("POST", routes.RESTORE, first)
    assert (restored["state"], restored["deletion_reason"]) == ("committed", None)


def test_a_writer_may_look_and_not_set_and_an_admin_of_another_project_sees_nothing(training: Training) -> None:
    path = training.path(routes.RUN_RETENTION)
    writer = {"authorization": f"Bearer {training.service.new_token(Scope.WRITE, project='project')}"}
    Training(training.service, project="elsewhere")
    stranger = {"authorization": f"Bearer {training.service.new_token(Scope.ADMIN, project='elsewhere')}"}
    owner = {"authorization": f"Bearer {training.service.new_token(Scope.ADMIN, project='project')}"}

    training.service.ask("GET", path, headers=writer)
    training.service.refused("scope_too_narrow", "PUT", path, {"keep_last": 1}, headers=writer)
    training.service.refused("unknown_project", "PUT", path, {"keep_last": 1}, headers=stranger)
    training.service.ask("PUT", path, {"keep_last": 1}, headers=owner)


def test_nothing_is_deleted_while_retention_is_paused(training: Training) -> None:
    save_steps(training, training.start(), 1, 2)
    set_run(training, keep_last=1)
    with training.service.database.write() as session:
        pause_retention(session, "a rebuild")

    assert apply(training) == 0
    assert training.service.ask("POST", training.path(routes.RUN_RETENTION_APPLY))["paused"] == "a rebuild"
    with training.service.database.write() as session:
        resume_retention(session)
    assert apply(training) == 1


def test_a_rollback_keeps_what_it_left_for_the_set_time_from_then_on(training: Training) -> None:
    first, second, third = save_steps(training, training.start(), 1, 2, 3)
    set_run(training, keep_last=1, off_line_seconds=1000)
    training.service.advance(5000)
    rolled_back = training.begin()
    training.decide(rolled_back, checkpoint_id=first)
    training.save(rolled_back, save=1, step=2)

    assert apply(training) == 0
    training.service.advance(1100)
    assert apply(training) == 2
    assert {training.info(one)["state"] for one in (second, third)} == {"deleted"}
    assert training.info(first)["state"] == "committed"  # the current attempt resumed from it


def test_tags_are_set_once_moved_and_kept_by(training: Training) -> None:
    first, second, third = save_steps(training, training.start(), 1, 2, 3)
    set_run(training, keep_last=1, tags=["paper"])

    def tag(method: str, checkpoint: str, name: str, **options: Any) -> dict[str, Any]:
        return training.service.ask(method, routes.path(routes.TAG, checkpoint=checkpoint, tag=name), **options)

    version = tag("PUT", first, "paper")["version"]
    assert tag("PUT", first, "paper")["version"] == version
    tag("PUT", second, "best")
    moved = tag("PUT", third, "best", query={"only": "true"})
    assert (moved["tags"], training.info(second)["tags"]) == (["best"], [])
    assert apply(training) == 1
    assert training.info(first)["tags"] == ["paper"]
    tag("DELETE", first, "paper")
    assert tag("DELETE", first, "paper")["tags"] == []
    assert apply(training) == 1
    listed = training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS), query={"tag": "best"})
    assert [item["id"] for item in listed["items"]] == [third]


def test_two_workers_at_once_delete_each_checkpoint_once(training: Training) -> None:
    save_steps(training, training.start(), 1, 2, 3, 4)
    set_run(training, keep_last=1)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: apply(training), range(4)))

    assert sum(counts) == 3
    with training.service.database.read() as session:
        query = select(func.count()).select_from(AuditEntry).where(AuditEntry.action == "checkpoint.delete")
        assert session.scalars(query).one() == 3


@pytest.mark.parametrize("kind", ["project", "run"])
def test_a_deleted_runs_policy_deletes_nothing(training: Training, kind: str) -> None:
    save_steps(training, training.start(), 1, 2)
    set_run(training, keep_last=1)
    info = training.service.ask("GET", training.path(routes.RUN))
    path = routes.path(routes.RUN_BY_ID, run=info["id"])
    if kind == "project":
        project = training.service.ask("GET", training.path(routes.PROJECT))["id"]
        path = routes.path(routes.PROJECT_BY_ID, project=project)
    training.service.ask("DELETE", path, headers={"if-match": '"1"'})

    assert apply(training) == 0
