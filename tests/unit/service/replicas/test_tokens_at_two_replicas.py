"""Tokens, grants and quotas are the same at every replica, and a revocation reaches all of them within seconds."""

from __future__ import annotations

from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.training import Training
from tests.waiting import wait_until


def test_E188_a_token_of_one_run_gets_the_same_answers_at_each_replica(replicas: tuple[Training, Training]) -> None:
    first, second = replicas
    other = Training(first.service, run="other")
    theirs = other.save(other.start(fresh=True), save=1, step=1)
    mine = first.save(first.start(fresh=True), save=1, step=1)
    token = first_admin(first.service).mint(scope="read").token
    for service in (first.service, second.service):
        reader = Holder(service, token)
        assert reader.ask("GET", f"/v1/checkpoints/{mine}")["state"] == "committed"
        reader.refused("unknown_checkpoint", "GET", f"/v1/checkpoints/{theirs}")
        reader.refused("unknown_run", "GET", "/v1/projects/project/runs/other")
        reader.refused("scope_too_narrow", "POST", "/v1/tokens/job", {"project": "project", "run": "run"})
    assert second.load(mine).shape == (4, 4)


def test_a_revocation_at_one_replica_reaches_the_other_within_seconds(replicas: tuple[Training, Training]) -> None:
    here, there = (training.service for training in replicas)
    holder = first_admin(here).make("read")
    elsewhere = Holder(there, holder.token)
    elsewhere.ask("GET", "/v1/projects")
    token_id = holder.info["id"]
    first_admin(here).ask("DELETE", f"/v1/tokens/{token_id}")
    holder.refused("token_invalid", "GET", "/v1/projects")
    wait_until(lambda: elsewhere.send("GET", "/v1/projects").status == 401, seconds=30)


def test_a_quota_set_at_one_replica_holds_at_the_other(replicas: tuple[Training, Training]) -> None:
    first, second = replicas
    attempt = first.start(fresh=True)
    first.service.ask("PUT", "/v1/projects/project/quota", {"max_checkpoints": 1})
    first.open_all(attempt, save=1, step=1)
    body = {"save": 2, "step": 2, "rank": 0, "world_size": 2}
    problem = second.service.refused("quota_exceeded", "POST", f"/v1/attempts/{attempt}/checkpoints", body)
    assert (problem["used"], problem["limit"]) == (1, 1)
