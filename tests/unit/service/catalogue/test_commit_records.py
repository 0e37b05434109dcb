"""The outbox is worked off into records, whatever is repeated, late or in the way."""

from __future__ import annotations

import pytest

from shardkeep.errors import FormatError
from shardkeep.protocol import routes
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.commit_records import delete_records, unknown_commit_records, write_commit_records
from shardkeep_service.catalogue.outbox import outbox_lag_seconds, record_checkpoint
from shardkeep_service.catalogue.reading import read_record
from shardkeep_service.catalogue.records import (
    AttemptRecord,
    CommitRecord,
    OpenRecord,
    ProjectRecord,
    RunRecord,
    decode_record,
    encode_record,
)
from shardkeep_service.checkpoints.models import Checkpoint, OutboxEntry
from tests.unit.service.training import Training


def project_id(training: Training) -> str:
    return str(training.service.ask("GET", training.path(routes.PROJECT))["id"])


def stored(training: Training, folder: str) -> list[str]:
    return [blob.key for blob in training.service.blob_store.list(f"{project_id(training)}/{folder}/")]


def newest(training: Training, checkpoint: str) -> CommitRecord:
    prefix = keys.commit_records_prefix(project_id(training), checkpoint)
    key = [blob.key for blob in training.service.blob_store.list(prefix)][-1]
    return read_record(training.service.blob_store, key, CommitRecord)


def write(training: Training) -> int:
    return write_commit_records(training.service.context)


def test_everything_that_a_rebuild_needs_has_a_record(training: Training) -> None:
    blob_store = training.service.blob_store
    attempt = training.start()
    checkpoint = training.save(attempt, save=1, step=10)

    write(training)

    [project_key] = [blob.key for blob in blob_store.list(keys.PROJECTS)]
    assert read_record(blob_store, project_key, ProjectRecord).name == "project"
    [run_key] = stored(training, "runs")
    assert read_record(blob_store, run_key, RunRecord).name == "run"
    [attempt_key] = stored(training, "attempts")
    assert read_record(blob_store, attempt_key, AttemptRecord).decision == "fresh"
    record = newest(training, checkpoint)
    assert (record.checkpoint_id, record.sequence, record.step) == (checkpoint, 1, 10)
    assert [manifest.rank for manifest in record.manifests] == [0, 1]


def test_a_checkpoint_that_stays_open_is_recorded_as_open(training: Training) -> None:
    attempt = training.start()
    checkpoint = training.open_all(attempt, save=1, step=10)

    write(training)

    key = keys.open_record_key(project_id(training), checkpoint)
    record = read_record(training.service.blob_store, key, OpenRecord)
    assert (record.attempt_id, record.save, record.step, record.number) == (attempt, 1, 10, 1)


def test_an_attempt_that_rolled_back_says_where_it_went_on_from(training: Training) -> None:
    first = training.save(training.start(), save=1, step=10)
    rolled_back = training.start(checkpoint_id=first)

    write(training)

    key = keys.attempt_record_key(project_id(training), rolled_back, 2)
    origin = read_record(training.service.blob_store, key, AttemptRecord).origin
    assert origin is not None
    assert (origin.checkpoint_id, origin.step, origin.sequence) == (first, 10, 1)


def test_pins_and_deletions_are_records_of_later_versions(training: Training) -> None:
    checkpoint = training.save(training.start(), save=1, step=10)
    write(training)
    before = newest(training, checkpoint)

    training.change("PUT", routes.PIN, checkpoint)
    write(training)
    pinned = newest(training, checkpoint)
    training.change("DELETE", routes.PIN, checkpoint)
    training.change("DELETE", routes.CHECKPOINT, checkpoint)
    write(training)
    deleted = newest(training, checkpoint)
    training.change("POST", routes.RESTORE, checkpoint)
    write(training)
    restored = newest(training, checkpoint)

    assert before.version < pinned.version < deleted.version < restored.version
    assert (before.pinned, pinned.pinned, deleted.pinned) == (False, True, False)
    assert (before.deleted_at, pinned.deleted_at, restored.deleted_at) == (None, None, None)
    assert deleted.deleted_at is not None
    assert len(stored(training, "commits")) == 4


def test_writing_the_same_entry_again_changes_nothing(training: Training) -> None:
    checkpoint = training.save(training.start(), save=1, step=10)
    write(training)
    objects = stored(training, "commits")
    with training.service.database.write() as session:
        for entry in session.query(OutboxEntry).all():
            entry.done_at = None

    assert write(training) > 0

    assert stored(training, "commits") == objects
    assert training.info(checkpoint)["version"] == newest(training, checkpoint).version


def test_a_version_that_a_lost_life_of_the_database_wrote_is_passed_by(training: Training) -> None:
    checkpoint = training.save(training.start(), save=1, step=10)
    write(training)
    ours = newest(training, checkpoint)
    for version in (ours.version + 1, ours.version + 5):
        key = keys.commit_record_key(project_id(training), checkpoint, version)
        training.service.blob_store.put(key, memoryview(b"of another life"))

    training.change("PUT", routes.PIN, checkpoint)
    write(training)

    assert newest(training, checkpoint).version == ours.version + 6
    assert newest(training, checkpoint).pinned
    assert training.info(checkpoint)["version"] == ours.version + 6


def test_a_purged_checkpoint_gets_no_record_and_one_left_by_a_race_is_removed(training: Training) -> None:
    checkpoint = training.save(training.start(), save=1, step=10)
    project = project_id(training)
    write(training)
    with training.service.database.write() as session:
        session.get_one(Checkpoint, checkpoint).state = "purged"
        record_checkpoint(session, checkpoint)
    delete_records(training.service.context, project, checkpoint)
    write(training)
    assert stored(training, "commits") == []

    left = keys.commit_record_key(project, checkpoint, 9)
    training.service.blob_store.put(left, memoryview(b"late"))
    assert unknown_commit_records(training.service.context, project) == []
    assert stored(training, "commits") == []


def test_records_of_checkpoints_that_the_database_does_not_know_are_named(training: Training) -> None:
    known = training.save(training.start(), save=1, step=10)
    project = project_id(training)
    write(training)
    unknown = "ckp_" + "1" * 32
    training.service.blob_store.put(keys.commit_record_key(project, unknown, 3), memoryview(b"x"))

    assert unknown_commit_records(training.service.context, project) == [unknown]
    assert newest(training, known).checkpoint_id == known


def test_an_entry_of_the_first_schema_s_service_is_written_and_one_of_a_newer_kind_is_left(training: Training) -> None:
    checkpoint = training.save(training.start(), save=1, step=10)
    with training.service.database.write() as session:
        session.query(OutboxEntry).delete()
        now = training.service.database.now(session)
        session.add(OutboxEntry(kind="commit_record", checkpoint_id=checkpoint, subject_id="", created_at=now))
        session.add(OutboxEntry(kind="of_a_newer_version", subject_id="x", created_at=now))
        session.add(OutboxEntry(kind="run_record", subject_id="run_that_is_gone", created_at=now))

    assert write(training) == 1

    assert newest(training, checkpoint).checkpoint_id == checkpoint
    with training.service.database.read() as session:
        assert [row.kind for row in session.query(OutboxEntry).filter_by(done_at=None)] == ["of_a_newer_version"]


def test_the_lag_is_the_age_of_the_oldest_unwritten_change(training: Training) -> None:
    training.save(training.start(), save=1, step=10)
    training.service.advance(40)
    with training.service.database.read() as session:
        assert 40 <= outbox_lag_seconds(session) < 80

    write(training)

    with training.service.database.read() as session:
        assert outbox_lag_seconds(session) == 0
    assert training.service.context.metrics.outbox_lag._value.get() == 0


def test_done_entries_are_forgotten_after_a_day(training: Training) -> None:
    training.save(training.start(), save=1, step=10)
    write(training)
    training.service.advance(2 * 86_400)
    training.save(training.start(), save=1, step=20)
    write(training)
    write(training)

    with training.service.database.read() as session:
        now = training.service.database.now(session)
        assert all((entry.done_at or 0) > now - 86_400_000_000 for entry in session.query(OutboxEntry).all())


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_anywhere_in_a_record_is_found(bit: int) -> None:
    record = RunRecord(2, "run_1", "prj_1", "name", 5)
    body = bytes(encode_record(record))
    assert decode_record(body, RunRecord) == record
    for place in range(len(body)):
        flipped = bytearray(body)
        flipped[place] ^= 1 << bit
        with pytest.raises(FormatError):
            decode_record(bytes(flipped), RunRecord)
