"""The ranks of a checkpoint: every one of the world, by state and page, with what its session and manifest tell."""

from __future__ import annotations

from typing import Any

from shardkeep.protocol import routes
from shardkeep_service.checkpoints.models import RankSession
from shardkeep_service.garbage_collection.collector import steps
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.fetched_rows import counted
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def _page(training: Training, checkpoint: str, **query: str | int) -> dict[str, Any]:
    return training.service.ask("GET", routes.path(routes.RANKS, checkpoint=checkpoint), query=query)


def _parts(training: Training, checkpoint: str, **query: str | int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = _page(training, checkpoint, **query)["items"]
    return items


def _mixed(training: Training) -> str:
    """A world of 5: rank 1 has sent its manifest, 2 and 4 have opened, 0 and 3 never came."""
    attempt = training.start(5)
    opened = [training.open(attempt, save=1, step=7, rank=rank, world_size=5) for rank in (1, 2, 4)]
    checkpoint = str(opened[0]["checkpoint_id"])
    packed = training.pack_all(7, 5)[1]
    training.service.advance(30)
    training.upload(checkpoint, 1, packed)
    training.hand_in(checkpoint, 1, packed)
    return checkpoint


def test_every_rank_of_an_open_checkpoint_is_told_with_its_state(training: Training) -> None:
    checkpoint = _mixed(training)
    with training.service.database.write() as session:
        row = session.get_one(RankSession, (checkpoint, 2))
        row.offered_bytes, row.present_bytes, row.missing_chunks = 100, 40, ["ab" * 32]

    parts = _parts(training, checkpoint)

    assert [part["rank"] for part in parts] == list(range(5))
    assert [part["state"] for part in parts] == ["absent", "arrived", "sending", "absent", "sending"]
    assert (parts[2]["offered_bytes"], parts[2]["present_bytes"], parts[2]["missing_chunks"]) == (100, 40, 1)
    assert parts[0] == {
        "rank": 0,
        "state": "absent",
        "opened_at": None,
        "arrived_at": None,
        "seconds": None,
        "offered_bytes": None,
        "present_bytes": None,
        "idle_seconds": None,
        "lease_until": None,
        "manifest_bytes": None,
        "missing_chunks": 0,
    }
    assert parts[1]["seconds"] >= 30
    assert parts[1]["manifest_bytes"] == len(training.pack_all(7, 5)[1].manifest)
    assert parts[2]["arrived_at"] is None


def test_a_rank_is_idle_since_its_last_request_on_database_time(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=1)
    training.service.advance(50)
    training.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=1))
    training.service.advance(20)

    silent, beating = _parts(training, checkpoint)

    assert silent["idle_seconds"] >= 70
    assert 20 <= beating["idle_seconds"] < 70
    assert beating["lease_until"] > silent["lease_until"]


def test_ranks_are_narrowed_by_state_and_come_in_pages(training: Training) -> None:
    checkpoint = _mixed(training)

    by_state = {
        state: [part["rank"] for part in _parts(training, checkpoint, state=state)]
        for state in ("absent", "sending", "arrived")
    }
    assert by_state == {"absent": [0, 3], "sending": [2, 4], "arrived": [1]}
    first = _page(training, checkpoint, limit=3)
    second = _page(training, checkpoint, limit=3, cursor=first["next_cursor"])
    assert [part["rank"] for part in first["items"] + second["items"]] == list(range(5))
    assert second["next_cursor"] is None
    first = _page(training, checkpoint, state="absent", limit=1)
    second = _page(training, checkpoint, state="absent", limit=1, cursor=first["next_cursor"])
    assert [part["rank"] for part in first["items"] + second["items"]] == [0, 3]
    assert second["next_cursor"] is None
    wrong = {"cursor": first["next_cursor"], "state": "sending"}
    path = routes.path(routes.RANKS, checkpoint=checkpoint)
    training.service.refused("invalid_cursor", "GET", path, query=wrong)
    training.service.refused("malformed_request", "GET", path, query={"state": "lost"})


def test_of_a_finished_checkpoint_the_manifests_tell(training: Training) -> None:
    saved = training.save(training.start(), save=1, step=1)

    parts = _parts(training, saved)

    assert [(part["state"], part["opened_at"], part["idle_seconds"], part["lease_until"]) for part in parts] == [
        ("arrived", None, None, None)
    ] * 2
    assert all(part["seconds"] >= 0 and part["manifest_bytes"] > 0 for part in parts)


def test_an_aborted_one_shows_who_had_not_arrived(training: Training) -> None:
    checkpoint = _mixed(training)
    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=checkpoint), {"rank": 2, "reason": "no"})

    assert [part["state"] for part in _parts(training, checkpoint)] == ["absent", "arrived", *["absent"] * 3]


def test_of_a_purged_one_every_rank_had_arrived_though_its_manifests_are_gone(training: Training) -> None:
    attempt = training.start()
    saved = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, saved)
    training.service.advance(training.service.settings.deleted_keep_seconds + 86_400)
    for _ in steps(training.service.context):
        pass
    assert training.info(saved)["state"] == "purged"

    assert [(part["state"], part["manifest_bytes"]) for part in _parts(training, saved)] == [("arrived", None)] * 2
    assert _parts(training, saved, state="absent") == []
    assert len(_parts(training, saved, state="arrived")) == 2


def test_a_page_asks_the_same_number_of_queries_whatever_its_size(training: Training) -> None:
    checkpoint = training.open_all(training.start(40), save=1, step=1, world_size=40)

    def count(limit: int, **query: str) -> int:
        with counted(training.service.database) as fetched:
            assert len(_parts(training, checkpoint, limit=limit, **query)) == limit
        return len(fetched.statements)

    assert count(2) == count(30)
    assert count(2, state="sending") == count(30, state="sending")
