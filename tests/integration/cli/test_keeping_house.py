"""Retention, tags, and deleting and restoring runs and projects, from the command line and from Python."""

from __future__ import annotations

import numpy as np

from shardkeep.protocol.messages import RetentionRules
from tests.integration.cli.command_line import CommandLine, save, whole


def saved(shardkeep: CommandLine, run: str, *steps: int) -> list[str]:
    with shardkeep.client() as client:
        return [save(client, run, step, [[whole("w", np.full(4, step, np.float32))]]).id for step in steps]


def test_a_policy_is_tried_set_shown_applied_and_cleared(shardkeep: CommandLine) -> None:
    first, second = saved(shardkeep, "house/kept", 1, 2)

    assert "everything is kept" in shardkeep.ok("retention", "show", "house/kept").out
    plan = shardkeep.ok("retention", "dry-run", "house/kept", "--keep-last", 1, "--off-line", "7d", "--json").document
    assert (plan["kept"], plan["deleted"], plan["applied"]) == (2, 0, False)  # each attempt is a line of its own
    shown = shardkeep.ok("retention", "dry-run", "house/kept", "--keep-last", 1)
    assert "a rollback left it off the line" in shown.out
    assert "2 checkpoints kept, 0 checkpoints to be deleted" in shown.out
    best = ("--best", "loss:min:2", "--tag", "paper", "--younger-than", "30d")
    shardkeep.ok("retention", "set", "house/kept", "--keep-last", 1, *best)
    text = shardkeep.ok("retention", "show", "house/kept").out
    assert "the last 1 on the line" in text
    assert "the best 2 by min loss" in text
    done = shardkeep.ok("retention", "apply", "house/kept", "--json").document
    assert (done["applied"], done["deleted"]) == (True, 0)
    shardkeep.ok("retention", "clear", "house/kept")
    assert shardkeep("retention", "set", "house/kept", "--json").code == 2
    assert shardkeep("retention", "set", "house/kept", "--best", "loss:smallest", "--json").code == 2
    assert shardkeep("retention", "set", "house/kept", "--younger-than", "soon", "--json").code == 2
    assert {first, second} == {
        item["id"] for item in shardkeep.ok("ls", "house/kept", "--json").document["checkpoints"]
    }


def test_a_tag_is_set_moved_and_taken(shardkeep: CommandLine) -> None:
    first, second = saved(shardkeep, "house/tagged", 1, 2)

    shardkeep.ok("tag", first, "best")
    assert shardkeep.ok("tag", second, "best", "--only", "--json").document["checkpoint"]["tags"] == ["best"]
    with shardkeep.client() as client:
        found = client.run("house/tagged").tagged("best")
        assert found is not None
        assert found.id == second
        assert client.checkpoint(first).tags == []
        found.tag("paper")
        assert found.tags == ["best", "paper"]
        found.untag("best")
        assert client.run("house/tagged").tagged("best") is None
    shardkeep.ok("untag", second, "paper")


def test_a_run_and_a_project_are_deleted_listed_and_restored(shardkeep: CommandLine) -> None:
    [checkpoint] = saved(shardkeep, "gone/run", 1)

    assert shardkeep("rm", "gone/run", "--run", "--json").error["code"] == "not_confirmed"
    run = shardkeep.ok("rm", "gone/run", "--run", "--yes", "--json").document["run"]
    assert shardkeep("show", "gone/run", "--json").code == 3
    assert run["id"] in shardkeep.ok("ls", "gone", "--deleted").out
    shardkeep.ok("restore", "gone/run", "--run", "--name", "back")
    assert shardkeep.ok("show", "gone/back", "--json").document["checkpoint"]["id"] == checkpoint

    project = shardkeep.ok("rm", "gone", "--project", "--yes", "--json").document["project"]
    assert project["id"] in shardkeep.ok("ls", "--deleted").out
    assert shardkeep("ls", "gone", "--json").code == 3
    assert "restored project gone with 1 run" in shardkeep.ok("restore", project["id"]).out
    assert shardkeep.ok("show", "gone/back", "--json").document["checkpoint"]["id"] == checkpoint


def test_the_same_from_python(shardkeep: CommandLine) -> None:
    [checkpoint] = saved(shardkeep, "house/python", 1)
    with shardkeep.client() as client:
        run = client.run("house/python")
        rules = RetentionRules(keep_last=2)
        assert [verdict.kept for verdict in run.plan_retention(rules).verdicts] == [True]
        run.set_retention(rules)
        in_force = run.retention().in_force
        assert in_force is not None
        assert in_force.rules == rules
        deleted = run.delete()
        assert deleted.deleted_at is not None
        assert client.checkpoint(checkpoint).state == "deleted"
