"""Saves in progress: who opened and arrived, what was offered, and who has been silent for how long."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.checkpoints.models import RankSession
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def saves(asker: LocalService | Holder, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = asker.ask("GET", routes.SAVES, query=query)["items"]
    return items


def test_a_save_shows_what_its_ranks_did_and_what_its_parent_holds(local: LocalService, training: Training) -> None:
    attempt = training.start(4)
    parent = training.info(training.save(attempt, save=1, step=1, world_size=4))
    opened = [training.open(attempt, save=2, step=2, rank=rank, world_size=4) for rank in range(3)]
    checkpoint = opened[0]["checkpoint_id"]
    packed = training.pack_all(2, 4)
    training.upload(checkpoint, 1, packed[1])
    training.hand_in(checkpoint, 1, packed[1])
    with local.database.write() as session:
        for rank, offered in enumerate((100, 200, 300)):
            row = (RankSession.checkpoint_id == checkpoint, RankSession.rank == rank)
            values = {"offered_bytes": offered << 40, "present_bytes": rank << 40}
            session.execute(update(RankSession).where(*row).values(**values))

    [save] = saves(local)

    assert save["checkpoint"]["id"] == checkpoint
    assert save["checkpoint"] == {name: training.info(checkpoint)[name] for name in save["checkpoint"]}
    assert (save["opened_ranks"], save["arrived_ranks"]) == (3, 1)
    assert (save["offered_bytes"], save["present_bytes"]) == (600 << 40, 3 << 40)
    assert (save["raw_bytes_before"], save["named_bytes_before"]) == (parent["raw_bytes"], parent["stored_bytes"])


def test_idle_is_the_rank_that_has_been_silent_for_longest_and_has_not_arrived(
    local: LocalService, training: Training
) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=1)
    first = training.pack_all(1)[0]
    training.upload(checkpoint, 0, first)
    training.hand_in(checkpoint, 0, first)
    local.advance(50)
    [save] = saves(local)
    assert save["idle_seconds"] == pytest.approx(50, abs=20)

    local.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=1))
    [save] = saves(local)
    assert save["idle_seconds"] < 20, "rank 0 has arrived and need not say anything"


def test_a_save_without_ranks_or_parent_is_shown_and_one_that_ended_is_not(
    local: LocalService, training: Training
) -> None:
    attempt = training.start()
    training.save(attempt, save=1, step=1)
    given_up = training.open_all(attempt, save=2, step=2)
    local.ask("POST", routes.path(routes.ABORT, checkpoint=given_up), {"rank": 0, "reason": "enough"})
    other = Training(local, run="other")
    checkpoint = other.open_all(other.start(), save=1, step=1)
    with local.database.write() as session:
        session.query(RankSession).delete()

    [save] = saves(local)

    assert save["checkpoint"]["id"] == checkpoint
    sums = [save[name] for name in ("opened_ranks", "arrived_ranks", "offered_bytes", "present_bytes", "idle_seconds")]
    assert sums == [0, 0, 0, 0, 0]
    assert (save["raw_bytes_before"], save["named_bytes_before"]) == (None, None)


def test_saves_are_paged_newest_first_within_the_tokens_reach(local: LocalService) -> None:
    opened = []
    for project, run in (("mine", "a"), ("mine", "b"), ("theirs", "a")):
        training = Training(local, project=project, run=run)
        opened.append(training.open_all(training.start(), save=1, step=1))
        local.advance(1)
    bound = Holder(local, local.new_token(Scope.READ, project="mine"))
    job = first_admin(local).mint("a", project="mine")

    first = local.ask("GET", routes.SAVES, query={"limit": 2})
    second = local.ask("GET", routes.SAVES, query={"limit": 2, "cursor": first["next_cursor"]})

    seen = [save["checkpoint"]["id"] for page in (first, second) for save in page["items"]]
    assert seen == opened[::-1]
    assert second["next_cursor"] is None
    assert [save["checkpoint"]["id"] for save in saves(bound)] == opened[1::-1]
    assert [save["checkpoint"]["id"] for save in saves(job)] == opened[:1]
    assert [save["checkpoint"]["id"] for save in saves(local, project="theirs")] == opened[2:]
    bound.refused("unknown_project", "GET", routes.SAVES, query={"project": "theirs"})
