"""An old database beside a newer bucket: what it lacks is added, what the bucket knows better is taken over."""

from __future__ import annotations

import numpy as np

from shardkeep.protocol import routes
from shardkeep_service.catalogue.commit_records import (
    delete_records,
    unknown_commit_records,
    write_commit_records,
)
from shardkeep_service.catalogue.state import retention_paused
from shardkeep_service.checkpoints.expiry import expire_checkpoints
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk
from tests.unit.service.catalogue.lives import Lives
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training, whole_weight

pytestmark = BOTH_DATABASES


def project_of(training: Training) -> str:
    return str(training.service.ask("GET", training.path(routes.PROJECT))["id"])


def test_newer_commits_pins_and_deletions_are_added_and_collection_may_go_on(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first, second = (training.save(attempt, save=save, step=10 * save) for save in (1, 2))
        project = project_of(training)
    backup = lives.backup()
    with lives.service() as service:
        training = Training(service)
        third, fourth = (training.save(attempt, save=save, step=10 * save) for save in (3, 4))
        training.change("PUT", routes.PIN, first)
        training.change("DELETE", routes.CHECKPOINT, second)
        training.change("DELETE", routes.CHECKPOINT, fourth)

    lives.url = backup
    with lives.context() as context:
        newer = sorted([first, second, third, fourth])
        assert unknown_commit_records(context, project) == newer, "collection must stop"
    report = lives.rebuild(add=True)

    assert (report.checkpoints, report.changed, report.problem_count) == (2, 2, 0)
    with lives.context() as context:
        assert unknown_commit_records(context, project) == []
        with context.database.read() as session:
            assert retention_paused(session)
    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == third
        assert training.info(first)["pinned"]
        assert [training.info(one)["state"] for one in (second, fourth)] == ["deleted", "deleted"]
        np.testing.assert_array_equal(training.load(third), whole_weight(30, 2))
        assert training.save(attempt, save=5, step=50) == training.latest_id()


def test_a_checkpoint_that_was_open_in_the_backup_and_committed_after_it_is_committed(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        training.save(attempt, save=1, step=10)
        checkpoint = training.open_all(attempt, save=2, step=20)
        packed = training.pack_all(20)
        training.upload(checkpoint, 0, packed[0])
        training.hand_in(checkpoint, 0, packed[0])
        project = project_of(training)
    backup = lives.backup()
    with lives.service() as service:
        training = Training(service)
        training.upload(checkpoint, 1, packed[1])
        training.hand_in(checkpoint, 1, packed[1])
        assert service.wait_until_settled(checkpoint)["state"] == "committed"

    lives.url = backup
    with lives.service() as service:
        service.advance(1_000)
        expire_checkpoints(service.context)
        assert Training(service).info(checkpoint)["state"] == "aborted"
        assert unknown_commit_records(service.context, project) == [checkpoint]
    report = lives.rebuild(add=True)

    assert report.checkpoints == 1
    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == checkpoint
        assert training.info(checkpoint)["abort"] is None
        np.testing.assert_array_equal(training.load(checkpoint), whole_weight(20, 2))


def test_where_the_backup_went_on_its_own_line_stays_and_the_lost_one_is_loadable_beside_it(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first = training.save(attempt, save=1, step=10)
    backup = lives.backup()
    with lives.service() as service:
        training = Training(service)
        lost_in_attempt = training.save(attempt, save=2, step=20)
        lost = training.save(training.start(), save=1, step=30)

    lives.url = backup
    with lives.service() as service:
        training = Training(service)
        in_attempt = training.save(attempt, save=2, step=25)
        went_on = training.start()
        newest = training.save(went_on, save=1, step=35)
    report = lives.rebuild(add=True)

    assert report.checkpoints == 2
    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == newest
        listed = training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS))["items"]
        assert [(item["id"], item["on_line"]) for item in listed][:3] == [
            (newest, True),
            (in_attempt, True),
            (first, True),
        ]
        assert {item["id"] for item in listed if not item["on_line"]} == {lost_in_attempt, lost}
        for checkpoint, step in ((lost_in_attempt, 20), (lost, 30), (newest, 35), (in_attempt, 25)):
            np.testing.assert_array_equal(training.load(checkpoint), whole_weight(step, 2))
        assert training.save(went_on, save=2, step=45) == training.latest_id()


def test_what_was_purged_after_the_backup_is_purged_and_a_chunk_that_moved_is_found(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first, second = (training.save(attempt, save=save, step=10 * save) for save in (1, 2))
        project = project_of(training)
    backup = lives.backup()
    store = lives.blob_store
    with lives.context() as context:
        delete_records(context, project, first)
    store.delete([blob.key for blob in store.list(f"{project}/") if first in blob.key])
    [moved, _] = [blob for blob in store.list(f"{project}/chunks/") if second in blob.key]
    body = memoryview(bytearray(moved.size_bytes))
    store.read_into(moved.key, 0, body)
    elsewhere = f"{moved.key.removesuffix('.1')}.2"
    store.put(elsewhere, body)
    store.delete([moved.key])

    lives.url = backup
    report = lives.rebuild(add=True)

    assert report.purged == 1
    with lives.service() as service:
        training = Training(service)
        assert training.info(first)["state"] == "purged"
        assert training.latest_id() == second
        np.testing.assert_array_equal(training.load(second), whole_weight(20, 2))
        with service.database.read() as session:
            row = session.query(Chunk).filter_by(object_key=elsewhere).one()
            assert (row.state, row.verification, row.uploads) == ("stored", "declared", 2)


def test_what_the_restored_database_was_told_since_wins_over_older_records(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first = training.save(attempt, save=1, step=10)
    backup = lives.backup()
    with lives.service() as service:
        training = Training(service)
        training.change("PUT", routes.PIN, first)
        training.change("DELETE", routes.PIN, first)
        training.change("PUT", routes.PIN, first)

    lives.url = backup
    with lives.service(records=False) as service:
        Training(service).change("DELETE", routes.CHECKPOINT, first)
    lives.rebuild(add=True)

    with lives.service() as service:
        training = Training(service)
        assert training.info(first)["state"] == "deleted"
        write_commit_records(service.context)
    lives.lose()
    lives.rebuild()
    with lives.context() as context, context.database.read() as session:
        row = session.get_one(Checkpoint, first)
        assert (row.state, row.pinned) == ("deleted", False)


def test_a_chunk_that_was_quarantined_in_the_backup_and_healed_after_it_is_whole(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first, second = (training.save(attempt, save=save, step=10 * save) for save in (1, 2))
        project = project_of(training)
        [damaged, _] = [blob.key for blob in lives.blob_store.list(f"{project}/chunks/") if second in blob.key]
        lives.flip_a_bit(damaged, place=-3)
        digest = damaged.rsplit("/", 1)[1].removesuffix(".1")
        service.ask("POST", routes.path(routes.DAMAGE, checkpoint=second), {"digests": [digest]})
        assert training.latest_id() == first
    backup = lives.backup()
    with lives.service() as service:
        training = Training(service)
        checkpoint = training.open_all(attempt, save=3, step=30)
        for rank, packed in enumerate(training.pack_all(20)):
            training.upload(checkpoint, rank, packed)
        assert training.latest_id() == second

    lives.url = backup
    lives.rebuild(add=True)

    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == second
        np.testing.assert_array_equal(training.load(second), whole_weight(20, 2))


def test_chunks_that_were_condemned_in_the_backup_and_named_again_after_it_live(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        training.save(attempt, save=1, step=10)
    with lives.context() as context, context.database.write() as session:
        for row in session.query(Chunk).all():
            row.state = "condemned"
    backup = lives.backup()
    with lives.context() as context, context.database.write() as session:
        for row in session.query(Chunk).all():
            row.state = "stored"
    with lives.service() as service:
        training = Training(service)
        again = training.save(attempt, save=2, step=10 + 10, packed=training.pack_all(20))
        same = training.start(fresh=True)
        named = training.save(same, save=1, step=10)

    lives.url = backup
    report = lives.rebuild(add=True)

    assert sorted(report.quarantined) == []
    with lives.service() as service:
        training = Training(service)
        for checkpoint, step in ((again, 20), (named, 10)):
            np.testing.assert_array_equal(training.load(checkpoint), whole_weight(step, 2))
        with service.database.read() as session:
            assert {row.state for row in session.query(Chunk)} == {"stored"}
