"""The database is dropped: what was committed comes back from the bucket, as it was."""

from __future__ import annotations

import numpy as np
import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.models import AuditEntry
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.commit_records import delete_records, unknown_commit_records, write_commit_records
from shardkeep_service.catalogue.owner import BucketRefused, claim_bucket
from shardkeep_service.catalogue.rebuilding.rebuild import RebuildRefused, rebuild
from shardkeep_service.catalogue.state import rebuild_unfinished, resume_retention, retention_paused
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Run
from tests.unit.service.catalogue.lives import Lives
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training, whole_weight

pytestmark = BOTH_DATABASES


def known(training: Training) -> list[dict[str, object]]:
    """Every checkpoint as it is shown, without what a rebuild may change."""
    page = training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS))
    return [{**training.info(str(item["id"])), "version": 0} for item in page["items"]]


def run_row(training: Training) -> tuple[int, int, int, str | None]:
    with training.service.database.read() as session:
        row = session.query(Run).one()
        return row.attempts, row.opened, row.sequence, row.current_attempt_id


def test_every_committed_checkpoint_loads_bit_equal_with_pins_deletions_tags_numbers_and_latest(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        saved = [training.save(attempt, save=save, step=10 * save) for save in (1, 2, 3, 4)]
        training.change("PUT", routes.PIN, saved[0])
        training.change("DELETE", routes.CHECKPOINT, saved[3])
        with service.database.write() as session:
            row = session.get_one(Checkpoint, saved[1])
            session.add(CheckpointTag(checkpoint_id=row.id, tag="good", run_id=row.run_id, set_at=7))
            row.version += 1
        training.change("PUT", routes.PIN, saved[1])
        before, latest, numbers = known(training), training.latest_id(), run_row(training)

    lives.lose()
    report = lives.rebuild()

    assert (report.checkpoints, report.chunks, report.problem_count) == (4, 8, 0)
    with lives.service() as service:
        training = Training(service)
        assert known(training) == before
        assert (training.latest_id(), run_row(training)) == (latest, numbers) == (saved[2], numbers)
        for step, checkpoint in zip((10, 20, 30), saved, strict=False):
            np.testing.assert_array_equal(training.load(checkpoint), whole_weight(step, 2))
        restored = training.change("POST", routes.RESTORE, saved[3])
        assert restored["state"] == "committed"
        np.testing.assert_array_equal(training.load(saved[3]), whole_weight(40, 2))
        with service.database.read() as session:
            assert [(tag.checkpoint_id, tag.tag, tag.set_at) for tag in session.query(CheckpointTag)] == [
                (saved[1], "good", 7)
            ]


def test_the_running_attempt_goes_on_saving_and_what_it_stored_is_present_for_it(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first = training.save(attempt, save=1, step=10)

    lives.lose()
    lives.rebuild()

    with lives.service() as service:
        training = Training(service)
        packed = training.pack_all(20)
        same = training.pack_all(10)
        checkpoint = training.open_all(attempt, save=2, step=20)
        offer = [{"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64} for ref, _ in same[0].chunks]
        answer = service.ask("POST", routes.path(routes.NEGOTIATE, checkpoint=checkpoint), {"rank": 0, "chunks": offer})
        assert [chunk["present"] for chunk in answer["chunks"]] == [True]
        assert training.finish(checkpoint, packed)["state"] == "committed"
        assert training.info(checkpoint)["parent_id"] == first
        assert (training.info(checkpoint)["sequence"], training.latest_id()) == (2, checkpoint)


def test_a_rollback_whose_attempt_committed_nothing_yet_still_decides_what_is_latest(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first, second = (training.save(attempt, save=save, step=10 * save) for save in (1, 2))
        rolled_back = training.start(checkpoint_id=first)
        assert training.latest_id() == first

    lives.lose()
    lives.rebuild()

    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == first
        assert run_row(training)[3] == rolled_back
        assert not training.info(second)["on_line"]
        training.save(rolled_back, save=1, step=20)
        service.refused("attempt_fenced", "POST", routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt),
                        {"save": 9, "step": 90, "rank": 0, "world_size": 2})  # fmt: skip


def test_a_line_leads_through_a_checkpoint_that_was_purged(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first, second = (training.save(attempt, save=save, step=10 * save) for save in (1, 2))
        training.start(checkpoint_id=second)
    with lives.service() as service:
        training = Training(service)
        with service.database.write() as session:
            session.get_one(Checkpoint, second).state = "purged"
        project = str(service.ask("GET", training.path(routes.PROJECT))["id"])
        delete_records(service.context, project, second)
        doomed = [blob.key for blob in lives.blob_store.list(f"{project}/") if second in blob.key]
        lives.blob_store.delete(doomed)
        assert training.latest_id() == first

    lives.lose()
    report = lives.rebuild()

    assert report.problem_count == 0
    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == first
        assert training.info(second)["state"] == "purged"
        assert run_row(training)[2] == 2


def test_whole_without_a_record_is_unconfirmed_never_latest_and_usable_once_accepted(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first = training.save(attempt, save=1, step=10)
    with lives.service(records=False) as service:  # the database is lost before the record of the commit is written
        training = Training(service)
        checkpoint = training.open_all(attempt, save=2, step=20)
        write_commit_records(service.context)
        training.finish(checkpoint, training.pack_all(20))
        half = training.open_all(attempt, save=3, step=30)
        packed = training.pack_all(30)
        training.upload(half, 0, packed[0])
        training.hand_in(half, 0, packed[0])
        project = str(service.ask("GET", training.path(routes.PROJECT))["id"])
        lives.blob_store.delete([blob.key for blob in lives.blob_store.list(f"{project}/commits/{checkpoint}")])

    lives.lose()
    report = lives.rebuild()

    assert (report.unconfirmed, report.incomplete, report.checkpoints) == ([checkpoint], 1, 1)
    with lives.service() as service:
        training = Training(service)
        latest = training.latest()
        assert latest["checkpoint"]["id"] == first
        assert [(over["checkpoint_id"], over["code"]) for over in latest["passed_over"]] == [
            (checkpoint, "unconfirmed")
        ]
        service.refused(
            "checkpoint_not_committed", "POST", routes.path(routes.RESUME, attempt=training.begin()),
            {"checkpoint_id": checkpoint},
        )  # fmt: skip

        accepted = training.change("POST", routes.ACCEPT, checkpoint)

        assert (accepted["state"], accepted["attempt_id"], accepted["sequence"]) == ("committed", attempt, 2)
        assert training.latest_id() == checkpoint
        np.testing.assert_array_equal(training.load(checkpoint), whole_weight(20, 2))
    lives.lose()
    assert lives.rebuild().checkpoints == 2


def test_an_unconfirmed_checkpoint_that_nobody_wants_is_discarded_by_deleting_it(lives: Lives) -> None:
    with lives.service(records=False) as service:
        training = Training(service)
        checkpoint = training.save(training.start(), save=1, step=10)

    lives.lose()
    report = lives.rebuild()

    assert report.unconfirmed == [checkpoint]
    assert "which run" in report.problems[0].detail
    with lives.service() as service:
        training = Training(service, run="recovered")
        gone = training.change("DELETE", routes.CHECKPOINT, checkpoint)
        assert (gone["state"], gone["abort"]["code"]) == ("aborted", "aborted_by_client")


def test_a_rebuild_that_was_interrupted_goes_on_when_it_is_run_again(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        saved = [training.save(attempt, save=save, step=10 * save) for save in (1, 2, 3)]

    lives.lose()
    real_store = lives.blob_store

    class StopsHalfWay(type(real_store)):  # type: ignore[misc]
        reads = 0

        def read_into(self, key: str, offset: int, out: memoryview) -> None:
            type(self).reads += 1
            if type(self).reads == 14:
                raise KeyboardInterrupt
            super().read_into(key, offset, out)

    with lives.context() as context:
        object.__setattr__(context, "blob_store", StopsHalfWay(lives._directory / "service" / "blobs"))
        with pytest.raises(KeyboardInterrupt):
            rebuild(context)
    with lives.context() as context, context.database.read() as session:
        assert rebuild_unfinished(session)
        assert 0 < session.query(Checkpoint).count() < 3

    lives.rebuild()

    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == saved[-1]
        assert len(known(training)) == 3
        with service.database.read() as session:
            assert not rebuild_unfinished(session)
            assert session.query(Chunk).count() == 6


def test_retention_is_paused_until_somebody_resumes_it_and_the_rebuild_is_in_the_audit_log(lives: Lives) -> None:
    with lives.service() as service:
        Training(service).save(Training(service).start(), save=1, step=10)
    lives.lose()

    lives.rebuild()

    with lives.context() as context, context.database.write() as session:
        assert "rebuilt" in (retention_paused(session) or "")
        assert "catalogue.rebuild" in {entry.action for entry in session.query(AuditEntry)}
        assert resume_retention(session)
        assert retention_paused(session) is None


def test_a_database_that_holds_something_is_refused_and_the_lost_one_is_refused_after_a_rebuild(lives: Lives) -> None:
    with lives.service() as service:
        Training(service).save(Training(service).start(), save=1, step=10)
        claim_bucket(service.context)
    old = lives.url
    with pytest.raises(RebuildRefused, match="not empty"):
        lives.rebuild()
    lives.lose()
    with lives.context() as context, pytest.raises(BucketRefused, match="rebuild"):
        claim_bucket(context)

    lives.rebuild()

    with lives.context() as context:
        claim_bucket(context)
    lives.url = old
    with lives.context() as context, pytest.raises(BucketRefused, match="term 2"):
        claim_bucket(context)
    with pytest.raises(RebuildRefused, match="do not go together"):
        lives.rebuild(add=True)


@pytest.mark.parametrize("folder", [keys.COMMITS, keys.ATTEMPTS, keys.RUNS, keys.PROJECTS])
def test_a_bit_flipped_in_a_record_is_told_and_costs_at_most_what_only_that_record_said(
    lives: Lives, folder: str
) -> None:
    with lives.service() as service:
        training = Training(service)
        checkpoint = training.save(training.start(), save=1, step=10)
        project = str(service.ask("GET", training.path(routes.PROJECT))["id"])
    prefix = folder if folder == keys.PROJECTS else f"{project}/{folder}/"
    [key] = [blob.key for blob in lives.blob_store.list(prefix)]
    lives.flip_a_bit(key)

    lives.lose()
    report = lives.rebuild()

    assert key in {problem.what for problem in report.problems}
    with lives.context() as context, context.database.read() as session:
        row = session.get_one(Checkpoint, checkpoint)
        assert row.state == ("unconfirmed" if folder == keys.COMMITS else "committed")
        assert session.query(Project).one().name == "project"
        assert session.query(Run).one().name == "run", "a damaged record still hints at where it belongs"


def test_a_damaged_record_of_a_pin_costs_the_pin_and_a_new_one_is_written_past_it(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        checkpoint = training.save(training.start(), save=1, step=10)
        write_commit_records(service.context)
        training.change("PUT", routes.PIN, checkpoint)
        project = str(service.ask("GET", training.path(routes.PROJECT))["id"])
    prefix = keys.commit_records_prefix(project, checkpoint)
    before, pinned = [blob.key for blob in lives.blob_store.list(prefix)]
    lives.flip_a_bit(pinned)

    lives.lose()
    report = lives.rebuild()

    assert [problem.what for problem in report.problems] == [pinned]
    with lives.service() as service:
        training = Training(service)
        assert not training.info(checkpoint)["pinned"]
        write_commit_records(service.context)
        assert unknown_commit_records(service.context, project) == []
    assert [blob.key for blob in lives.blob_store.list(prefix)][:2] == [before, pinned]
    assert len(list(lives.blob_store.list(prefix))) == 3


def test_a_lost_chunk_a_damaged_manifest_and_a_damaged_index_are_told_and_quarantined(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        whole, no_chunk, no_manifest, no_index = (training.save(attempt, save=n, step=10 * n) for n in (1, 2, 3, 4))
        project = str(service.ask("GET", training.path(routes.PROJECT))["id"])

    def objects(folder: str, checkpoint: str) -> list[str]:
        return [blob.key for blob in lives.blob_store.list(f"{project}/{folder}/") if checkpoint in blob.key]

    lives.blob_store.delete(objects("chunks", no_chunk)[:1])
    lives.flip_a_bit(objects("manifests", no_manifest)[0])
    lives.flip_a_bit(objects("indexes", no_index)[0])

    lives.lose()
    report = lives.rebuild()

    assert sorted(report.quarantined) == sorted([no_chunk, no_manifest])
    assert report.lost_chunks == 1
    with lives.service() as service:
        training = Training(service)
        assert training.latest_id() == no_index
        np.testing.assert_array_equal(training.load(no_index), whole_weight(40, 2))
        np.testing.assert_array_equal(training.load(whole), whole_weight(10, 2))
        assert training.info(no_chunk)["quarantined"]
        with service.database.read() as session:
            named = {row.checkpoint_id for row in session.query(Chunk.origin_checkpoint_id.label("checkpoint_id"))}
        assert no_manifest in named, "what a damaged manifest named must not be collected"
