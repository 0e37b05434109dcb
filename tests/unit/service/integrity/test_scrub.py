"""The scrub finds what is damaged, whatever it is, and says whom it harms; what can be made again is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import structlog
from sqlalchemy import update

from shardkeep.protocol import routes
from shardkeep_service.access.models import AuditEntry
from shardkeep_service.access.scopes import Scope as TokenScope
from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.catalogue.rebuilding.rebuild import rebuild
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.integrity import scrub as scrub_module
from shardkeep_service.integrity.scrub import Scope, Scrub, ScrubReport, scrub_due
from shardkeep_service.worker.loop import Turn
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.integrity.stored_objects import StoredObjects
from tests.unit.service.training import Training, whole_weight

pytestmark = BOTH_DATABASES


def scrub_all(training: Training) -> ScrubReport:
    context = training.service.context
    with context.database.read() as session:
        now = context.database.now(session)
    return Scrub(context, Scope(now), Turn(), bytes_per_second=0).run()


def findings(training: Training, *, resolved: bool = False, **narrowed: str) -> list[dict[str, Any]]:
    page = training.service.ask("GET", routes.FINDINGS, query={"resolved": resolved, **narrowed})
    items: list[dict[str, Any]] = page["items"]
    return items


@pytest.fixture
def stored(training: Training) -> StoredObjects:
    return StoredObjects(training)


@pytest.fixture
def saved(training: Training, stored: StoredObjects) -> list[str]:
    """Two checkpoints of two ranks, one chunk each, with their records."""
    attempt = training.start()
    made = [training.save(attempt, save=save, step=10 * save) for save in (1, 2)]
    stored.write_records()
    return made


def test_a_scrub_of_what_is_whole_reads_everything_once_and_finds_nothing(training: Training, saved: list[str]) -> None:
    first = scrub_all(training)
    turn = scrub_due(training.service.context, Turn())

    assert (first.chunks, first.checkpoints, first.damaged, first.quarantined) == (4, 2, [], [])
    assert turn.chunks == turn.checkpoints == 0, "nothing is due before the interval has passed"
    training.service.advance(31 * 86_400)
    assert scrub_due(training.service.context, Turn()).chunks == 4


def test_E204_a_flipped_bit_or_a_cut_end_is_found_by_the_scrub_and_marks_the_step_damaged(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    first, last = saved
    flipped, cut = stored.of("chunks", last)
    stored.flip_a_bit(flipped)
    stored.cut(cut, 5)

    with structlog.testing.capture_logs() as logs:
        report = scrub_all(training)

    assert sorted(report.damaged) == sorted([flipped, cut])
    latest = training.latest()
    assert latest["checkpoint"]["id"] == first, "an intact earlier step is offered"
    assert [(over["checkpoint_id"], over["code"]) for over in latest["passed_over"]] == [(last, "quarantined")]
    listed = training.service.ask("GET", training.path(routes.RUN_CHECKPOINTS))["items"]
    assert {item["id"]: item["quarantined"] for item in listed} == {first: False, last: True}
    found = findings(training)
    assert {(item["object_key"], item["damage"], tuple(item["harmed"])) for item in found} == {
        (flipped, "damaged", (last,)),
        (cut, "damaged", (last,)),
    }
    assert {"object_damaged", "checkpoints_harmed"} <= {entry["event"] for entry in logs}
    with training.service.database.read() as session:
        actions = {(entry.action, entry.target) for entry in session.query(AuditEntry)}
    assert {("object.damaged", flipped), ("checkpoint.quarantine", last)} <= actions
    metrics = training.service.context.metrics
    assert metrics.damaged_objects.labels("chunk")._value.get() == 2
    assert metrics.open_findings._value.get() == 2


def test_a_chunk_that_is_gone_is_lost(training: Training, stored: StoredObjects, saved: list[str]) -> None:
    gone = stored.of("chunks", saved[1])[0]
    training.service.blob_store.delete([gone])

    scrub_all(training)

    assert [(item["object_key"], item["damage"]) for item in findings(training)] == [(gone, "lost")]
    with training.service.database.read() as session:
        assert session.query(Chunk).filter_by(object_key=gone).one().state == "lost"


def test_the_next_save_heals_what_the_scrub_quarantined(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    damaged = stored.of("chunks", saved[1])[0]
    stored.flip_a_bit(damaged)
    scrub_all(training)
    assert training.latest_id() == saved[0]

    checkpoint = training.open_all(training.info(saved[1])["attempt_id"], save=3, step=30)
    same = training.pack_all(20)
    for rank, packed in enumerate(same):
        training.upload(checkpoint, rank, packed)

    assert training.latest_id() == saved[1]
    np.testing.assert_array_equal(training.load(saved[1]), whole_weight(20, 2))
    assert findings(training) == []
    [healed] = findings(training, resolved=True)
    assert healed["object_key"] == damaged
    assert "healed" in healed["resolution"]
    assert scrub_all(training).damaged == []


def test_a_save_that_reuses_a_quarantined_chunk_is_told_to_send_it_again(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    same = training.pack_all(20)
    checkpoint = training.open_all(training.start(checkpoint_id=saved[1]), save=1, step=20)
    stored.flip_a_bit(stored.of("chunks", saved[1])[0])
    scrub_all(training)

    refs = [ref for packed in same for ref, _ in packed.chunks]
    missing = []
    for rank, packed in enumerate(same):  # the manifests name the parent's chunks and send none of them
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=rank)
        answer = training.service.send("PUT", path, content=packed.manifest)
        if not answer.is_success:
            assert answer.json()["code"] == "chunks_missing"
            missing.extend(answer.json()["chunks"])
    assert len(missing) == 1
    assert missing[0] in {ref.digest for ref in refs}

    assert training.finish(checkpoint, same)["state"] == "committed"
    np.testing.assert_array_equal(training.load(checkpoint), whole_weight(20, 2))
    np.testing.assert_array_equal(training.load(saved[1]), whole_weight(20, 2))
    assert findings(training) == []


def test_declared_chunks_are_read_first_and_then_reusable_by_other_runs(training: Training, saved: list[str]) -> None:
    with training.service.database.write() as session:
        session.execute(update(Chunk).values(verification="declared", verified_at=None))
    assert training.service.ask("GET", routes.INTEGRITY)["coverage"] == 0
    offer = [
        {"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64}
        for packed in training.pack_all(10)
        for ref, _ in packed.chunks
    ]
    other = Training(training.service, run="other")
    checkpoint = other.open_all(other.start(), save=1, step=10)
    path = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
    before = training.service.ask("POST", path, {"rank": 0, "chunks": offer})

    report = scrub_due(training.service.context, Turn())

    assert (report.chunks, report.damaged) == (4, [])
    after = training.service.ask("POST", path, {"rank": 0, "chunks": offer})
    assert [[chunk["present"] for chunk in answer["chunks"]] for answer in (before, after)] == [
        [False, False],
        [True, True],
    ]
    info = training.service.ask("GET", routes.INTEGRITY)
    assert (info["coverage"], info["declared_bytes"], info["open_findings"]) == (1, 0, 0)


def test_a_damaged_index_is_built_again_by_the_scrub(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    [damaged] = stored.of("indexes", saved[1])
    stored.flip_a_bit(damaged)

    report = scrub_all(training)

    assert (report.damaged, report.repaired, report.quarantined) == ([], [damaged], [])
    assert training.latest_id() == saved[1]
    np.testing.assert_array_equal(training.load(saved[1]), whole_weight(20, 2))
    [finding] = findings(training, resolved=True)
    assert (finding["kind"], finding["harmed"]) == ("index", [saved[1]])
    assert scrub_all(training).repaired == []


def test_a_damaged_index_is_found_and_built_again_by_a_load(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    [damaged] = stored.of("indexes", saved[1])
    stored.flip_a_bit(damaged)
    training.service.control.indexes.clear()

    np.testing.assert_array_equal(training.load(saved[1]), whole_weight(20, 2))

    assert [item["object_key"] for item in findings(training, resolved=True)] == [damaged]


def test_a_damaged_manifest_quarantines_its_checkpoint_until_its_object_is_whole(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    damaged = stored.of("manifests", saved[1])[0]
    stored.flip_a_bit(damaged)

    report = scrub_all(training)

    assert (report.damaged, report.quarantined) == ([damaged], [saved[1]])
    assert training.latest_id() == saved[0]
    path = routes.path(routes.MANIFEST, checkpoint=saved[1], rank=0)
    training.service.refused("chunk_damaged", "GET", path)

    stored.flip_a_bit(damaged)  # somebody restores the object's version before
    assert scrub_all(training).quarantined == []
    assert training.latest_id() == saved[1]
    assert findings(training) == []


def test_what_a_purge_removes_beside_the_scrub_is_no_damage_and_closes_what_was_found(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    context = training.service.context
    damaged, *_ = stored.of("manifests", saved[0])
    stored.flip_a_bit(damaged)
    scrub_all(training)
    assert [item["object_key"] for item in findings(training)] == [damaged]

    class PurgesMeanwhile(FileSystemBlobStore):
        def read_into(self, key: str, offset: int, out: memoryview) -> None:
            if saved[1] in key and "/manifests/" in key:
                with training.service.database.write() as session:
                    session.execute(update(Checkpoint).where(Checkpoint.id.in_(saved)).values(state="purged"))
                self.delete([key])
            super().read_into(key, offset, out)

    object.__setattr__(context, "blob_store", PurgesMeanwhile(training.service.settings.data_dir / "blobs"))
    scrub_all(training)

    assert [item["object_key"] for item in findings(training)] == [damaged], "nothing new"
    assert scrub_all(training).damaged == []


def test_a_damaged_record_is_written_again_and_its_object_removed(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    [damaged] = stored.of("commits", saved[1])
    stored.flip_a_bit(damaged, place=100)

    first = scrub_all(training)
    stored.write_records()
    second = scrub_all(training)

    assert (first.damaged, second.damaged, second.repaired) == ([damaged], [], [damaged])
    [written] = stored.of("commits", saved[1])
    assert written > damaged
    assert findings(training) == []
    assert training.latest_id() == saved[1]
    assert scrub_all(training).repaired == []


def test_a_record_that_is_gone_or_says_something_old_is_written_again(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    training.change("PUT", routes.PIN, saved[0])
    stored.write_records()
    before, pinned = stored.of("commits", saved[0])
    training.service.blob_store.delete([pinned, *stored.of("commits", saved[1])])

    scrub_all(training)
    stored.write_records()

    assert stored.of("commits", saved[0]) == [before, pinned]
    assert len(stored.of("commits", saved[1])) == 1


def test_a_scrub_that_was_interrupted_goes_on_where_it_was(
    training: Training, saved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with training.service.database.write() as session:
        session.execute(update(Chunk).values(verification="declared", verified_at=None))
    context = training.service.context

    class StopsAfterTwo(FileSystemBlobStore):
        reads = 0

        def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
            self.reads += 1
            if self.reads > 2:
                raise KeyboardInterrupt
            return super().stream(key, offset, length, piece_bytes=piece_bytes)

    object.__setattr__(context, "blob_store", StopsAfterTwo(training.service.settings.data_dir / "blobs"))
    monkeypatch.setattr(scrub_module, "_batches", lambda chunks: [[chunk] for chunk in chunks])
    with pytest.raises(KeyboardInterrupt):
        scrub_due(context, Turn())
    object.__setattr__(context, "blob_store", training.service.blob_store)

    assert scrub_due(context, Turn()).chunks == 2


def test_what_the_store_does_not_give_is_passed_by_and_left_as_it_is(training: Training, saved: list[str]) -> None:
    context = training.service.context
    with training.service.database.read() as session:
        unreadable = session.query(Chunk).order_by(Chunk.id).limit(1).one().object_key

    class GivesNotOne(FileSystemBlobStore):
        def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
            if key == unreadable:
                raise BlobStoreUnavailable("no answer")
            return super().stream(key, offset, length, piece_bytes=piece_bytes)

    object.__setattr__(context, "blob_store", GivesNotOne(training.service.settings.data_dir / "blobs"))

    report = scrub_all(training)

    assert (report.chunks, report.unread, report.damaged) == (3, 1, [])
    assert training.latest_id() == saved[1]


def test_the_scrub_keeps_to_its_rate(training: Training, saved: list[str]) -> None:
    waited: list[float] = []

    class CountsWaits(Turn):
        def wait(self, seconds: float) -> None:
            waited.append(seconds)

    context = training.service.context
    with context.database.read() as session:
        now = context.database.now(session)
    report = Scrub(context, Scope(now), CountsWaits(), bytes_per_second=10).run()

    assert sum(waited) == pytest.approx(report.bytes_read / 10, rel=0.2)


def test_a_harmed_checkpoint_whose_flag_a_crash_kept_from_being_set_is_flagged_by_the_scrub(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    key = stored.of("chunks", saved[1])[0]
    with training.service.database.write() as session:
        session.execute(update(Chunk).where(Chunk.object_key == key).values(state="quarantined"))

    assert scrub_all(training).quarantined == [saved[1]]
    assert training.latest_id() == saved[0]


def test_findings_of_other_projects_are_hidden(training: Training, stored: StoredObjects, saved: list[str]) -> None:
    stored.flip_a_bit(stored.of("chunks", saved[1])[0])
    scrub_all(training)
    other = Training(training.service, project="elsewhere")
    token = training.service.new_token(TokenScope.READ, project="elsewhere")
    headers = {"authorization": f"Bearer {token}"}

    assert other.service.ask("GET", routes.FINDINGS, headers=headers)["items"] == []
    assert other.service.ask("GET", routes.INTEGRITY, headers=headers)["open_findings"] == 0
    assert len(findings(training)) == 1


def test_integrity_can_be_asked_for_one_project(training: Training, stored: StoredObjects, saved: list[str]) -> None:
    elsewhere = Training(training.service, project="elsewhere")
    elsewhere.save(elsewhere.start(), save=1, step=1)
    stored.flip_a_bit(stored.of("chunks", saved[1])[0])
    scrub_all(training)

    whole, mine, theirs = (
        training.service.ask("GET", routes.INTEGRITY, query=query)
        for query in ({}, {"project": "project"}, {"project": "elsewhere"})
    )

    assert whole["stored_bytes"] == mine["stored_bytes"] + theirs["stored_bytes"]
    assert mine["stored_bytes"] > theirs["stored_bytes"] > 0
    assert (mine["open_findings"], theirs["open_findings"]) == (1, 0)
    bound = {"authorization": f"Bearer {training.service.new_token(TokenScope.READ, project='elsewhere')}"}
    assert training.service.ask("GET", routes.INTEGRITY, headers=bound, query={"project": "elsewhere"}) == theirs
    training.service.refused("unknown_project", "GET", routes.INTEGRITY, headers=bound, query={"project": "project"})


def test_findings_can_be_asked_for_by_the_checkpoint_they_harm(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    for checkpoint_id in saved:
        stored.flip_a_bit(stored.of("chunks", checkpoint_id)[0])
    scrub_all(training)

    def harming(checkpoint_id: str, cursor: str | None = None) -> Any:
        asked = {"checkpoint": checkpoint_id, "limit": 1, **({"cursor": cursor} if cursor else {})}
        return training.service.ask("GET", routes.FINDINGS, query=asked)

    page = harming(saved[0])
    others = harming(saved[0], page["next_cursor"])["items"] if page["next_cursor"] else []

    assert {item["checkpoint_id"] for item in [*page["items"], *others]} == {saved[0]}
    assert all(saved[0] in item["harmed"] for item in [*page["items"], *others])
    assert harming("ckp_" + "0" * 32) == {"items": [], "next_cursor": None}


def test_a_finding_is_found_by_every_checkpoint_it_harms_however_many_it_names(
    training: Training, stored: StoredObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardkeep_service.integrity.findings.HARMED_NAMED", 1)
    packed = training.pack_all(10)
    saved = [training.save(training.start(), save=1, step=10, packed=packed) for _ in range(3)]
    stored.flip_a_bit(stored.of("chunks", saved[0])[0])
    scrub_all(training)

    [finding] = findings(training)

    assert finding["harmed"] == [min(saved)]
    for checkpoint_id in saved:
        assert findings(training, checkpoint=checkpoint_id) == [finding]
    scrub_all(training)
    assert findings(training, checkpoint=max(saved)) == [finding]


def test_a_finding_of_a_checkpoints_own_object_is_found_by_it_also_where_it_harms_nothing(
    training: Training, stored: StoredObjects, saved: list[str]
) -> None:
    [damaged] = stored.of("commits", saved[1])
    stored.flip_a_bit(damaged, place=100)
    scrub_all(training)

    [finding] = findings(training, checkpoint=saved[1])

    assert (finding["kind"], finding["object_key"], finding["harmed"]) == ("commit_record", damaged, [])
    assert findings(training, checkpoint=saved[0]) == []


def test_a_rebuild_keeps_what_the_scrub_cannot_know_and_a_scrub_after_it_proves_the_bytes(
    training: Training, saved: list[str]
) -> None:
    context = training.service.context
    report = rebuild(context, add=True)

    assert (report.checkpoints, report.problem_count) == (0, 0)
    assert scrub_all(training).damaged == []
