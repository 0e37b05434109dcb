"""Times of saves: by rank, newest first, in pages of bounded size."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, update

from shardkeep.protocol import routes
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.moments import micros
from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def arrive(local: LocalService, checkpoint: str, seconds: dict[int, float]) -> None:
    """Sets when ranks arrived, after the opening."""
    with local.database.write() as session:
        opened_at = session.get_one(Checkpoint, checkpoint).opened_at
        for rank, after in seconds.items():
            row = (ManifestRow.checkpoint_id == checkpoint, ManifestRow.rank == rank)
            session.execute(update(ManifestRow).where(*row).values(arrived_at=opened_at + micros(after)))


def test_each_rank_has_its_time_and_a_missing_one_none(local: LocalService, training: Training) -> None:
    attempt = training.start(3)
    whole = training.save(attempt, save=1, step=10, world_size=3)
    partial = training.open_all(attempt, save=2, step=20, world_size=3)
    packed = training.pack_all(20, 3)
    training.upload(partial, 1, packed[1])
    training.hand_in(partial, 1, packed[1])
    local.ask("POST", routes.path(routes.ABORT, checkpoint=partial), {"rank": 0, "reason": "enough"})
    arrive(local, whole, {0: 1.5, 1: 2, 2: 60.25})
    arrive(local, partial, {1: -1})

    answer = local.ask("GET", training.path(routes.RUN_SAVE_TIMES))

    newest, oldest = answer["items"]
    assert (oldest["checkpoint_id"], oldest["step"], oldest["state"]) == (whole, 10, "committed")
    assert oldest["seconds"] == [1.5, 2.0, 60.25]
    assert oldest["ended_at"] == training.info(whole)["committed_at"]
    assert (newest["checkpoint_id"], newest["state"], newest["ended_at"]) == (partial, "aborted", None)
    assert newest["seconds"] == [None, 0.0, None]
    assert (newest["number"], newest["save"], newest["attempt_id"]) == (2, 2, attempt)
    assert answer["next_cursor"] is None


def test_a_save_whose_manifests_were_removed_is_left_out(local: LocalService, training: Training) -> None:
    attempt = training.start()
    saved = [training.save(attempt, save=save, step=save) for save in (1, 2, 3)]
    with local.database.write() as session:
        session.execute(update(Checkpoint).where(Checkpoint.id == saved[0]).values(state="purged"))
        cleared = {"state": "aborted", "purged_at": 1}
        session.execute(update(Checkpoint).where(Checkpoint.id == saved[1]).values(**cleared))
        session.execute(delete(ManifestRow).where(ManifestRow.checkpoint_id.in_(saved[:2])))

    [only] = local.ask("GET", training.path(routes.RUN_SAVE_TIMES))["items"]

    assert only["checkpoint_id"] == saved[2]


def test_pages_go_back_in_time(local: LocalService, training: Training) -> None:
    attempt = training.start()
    saved = [training.save(attempt, save=save, step=save) for save in (1, 2, 3)]

    first = local.ask("GET", training.path(routes.RUN_SAVE_TIMES), query={"limit": 2})
    cursor = {"limit": 2, "cursor": first["next_cursor"]}
    second = local.ask("GET", training.path(routes.RUN_SAVE_TIMES), query=cursor)

    seen = [column["checkpoint_id"] for page in (first, second) for column in page["items"]]
    assert seen == saved[::-1]
    assert second["next_cursor"] is None


def test_a_page_of_many_ranks_is_cut_and_goes_on(
    local: LocalService, training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = training.start()
    saved = [training.save(attempt, save=save, step=save) for save in (1, 2, 3)]
    monkeypatch.setattr("shardkeep_service.checkpoints.save_times.CELLS_LIMIT", 3)

    seen: list[list[str]] = []
    query: dict[str, str] = {}
    while True:
        page = local.ask("GET", training.path(routes.RUN_SAVE_TIMES), query=query)
        seen.append([column["checkpoint_id"] for column in page["items"]])
        if page["next_cursor"] is None:
            break
        query = {"cursor": page["next_cursor"]}

    assert seen == [[saved[2]], [saved[1]], [saved[0]]]


def test_another_run_is_as_good_as_absent_for_a_jobs_token(local: LocalService, training: Training) -> None:
    Training(local, run="other")
    job = first_admin(local).mint("other")

    job.refused("unknown_run", "GET", training.path(routes.RUN_SAVE_TIMES))
