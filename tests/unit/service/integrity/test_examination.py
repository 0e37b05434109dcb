"""The doctor's examination finds what is made wrong on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.protocol import routes
from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.catalogue.owner import claim_bucket
from shardkeep_service.catalogue.record_keys import commit_record_key, owner_key, project_record_key
from shardkeep_service.catalogue.state import begin_rebuild, pause_retention
from shardkeep_service.database.database import Database
from shardkeep_service.integrity.examination import examine
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.integrity.stored_objects import StoredObjects
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


def examined(training: Training) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(training.service.context)}


def levels(training: Training) -> dict[str, Level]:
    """What is not in order."""
    return {name: found.level for name, found in examined(training).items() if found.level is not Level.OK}


@pytest.fixture(autouse=True)
def claimed(training: Training) -> None:
    claim_bucket(training.service.context)


def test_a_service_in_order_gets_no_complaint_and_keeps_no_trace(training: Training) -> None:
    StoredObjects(training).write_records()
    before = [blob.key for blob in training.service.blob_store.list("")]

    found = examined(training)

    assert {one.level for one in found.values()} == {Level.OK}
    assert {"database", "database_clock", "directory", "file_system", "free_space", "catalogue", "records", "outbox",
            "integrity", "settings"} == set(found)  # fmt: skip
    assert [blob.key for blob in training.service.blob_store.list("")] == before


def test_an_outbox_that_is_not_worked_off_is_told_and_fails_after_a_while(training: Training) -> None:
    training.save(training.start(), save=1, step=10)
    training.service.advance(120)
    assert levels(training)["outbox"] is Level.WARN
    training.service.advance(1_000)
    assert levels(training)["outbox"] is Level.FAIL


def test_commits_and_projects_that_only_the_bucket_knows_fail(training: Training) -> None:
    stored = StoredObjects(training)
    stored.write_records()
    key = commit_record_key(stored.project_id, "ckp_" + "1" * 32, 3)
    training.service.blob_store.put(key, memoryview(b"x"))
    assert levels(training) == {"records": Level.FAIL}
    assert "rebuild --add" in examined(training)["records"].advice

    training.service.blob_store.delete([key])
    training.service.blob_store.put(project_record_key("prj_" + "2" * 32, 1), memoryview(b"x"))
    assert levels(training) == {"records": Level.FAIL}


def test_a_bucket_of_another_catalogue_or_with_a_damaged_marker_fails(training: Training) -> None:
    stored = StoredObjects(training)
    stored.write_records()
    marker = stored.body(owner_key(1))
    training.service.blob_store.put(owner_key(2), memoryview(marker.replace(b'"term":1', b'"term":2')))
    assert levels(training) == {"catalogue": Level.FAIL}
    assert "damaged" in examined(training)["catalogue"].detail

    training.service.blob_store.delete([owner_key(2)])
    assert levels(training) == {}
    with training.service.database.write() as session:
        from shardkeep_service.catalogue.models import CatalogueFact

        session.query(CatalogueFact).filter_by(name="identity").update({"value": {"id": "cat_other"}})
    assert levels(training) == {"catalogue": Level.FAIL}


def test_a_paused_retention_and_an_unfinished_rebuild_are_told(training: Training) -> None:
    StoredObjects(training).write_records()
    with training.service.database.write() as session:
        begin_rebuild(session)
        pause_retention(session, "for a test")

    assert levels(training) == {"rebuild": Level.FAIL, "retention": Level.WARN}


def test_damage_that_is_known_is_told(training: Training) -> None:
    stored = StoredObjects(training)
    checkpoint = training.save(training.start(), save=1, step=10)
    stored.write_records()
    chunk = stored.of("chunks", checkpoint)[0]
    stored.flip_a_bit(chunk)
    digest = chunk.rsplit("/", 1)[1].removesuffix(".1")
    training.service.ask("POST", routes.path(routes.DAMAGE, checkpoint=checkpoint), {"digests": [digest]})

    assert levels(training) == {"integrity": Level.WARN}


def test_a_store_that_does_not_answer_fails_what_needs_it_and_the_rest_is_examined(training: Training) -> None:
    class Silent(FileSystemBlobStore):
        def list(self, prefix: str, *, after: str = "") -> object:  # type: ignore[override]
            raise BlobStoreUnavailable("no answer")

    StoredObjects(training).write_records()
    blobs = training.service.settings.data_dir / "blobs"
    object.__setattr__(training.service.context, "blob_store", Silent(blobs))

    found = levels(training)

    assert set(found.values()) == {Level.FAIL}
    assert {"owner", "unknown_records"} == set(found)


def test_a_database_that_is_not_there_or_not_migrated_fails(tmp_path: Path, database_url: str | None) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}" if database_url is None else f"{database_url}_gone"
    database = Database(url)
    context = ServiceContext(
        database, FileSystemBlobStore(tmp_path / "blobs"), Settings(data_dir=tmp_path, database_url=url)
    )

    found = {finding.name: finding.level for finding in examine(context)}

    database.close()
    context.pools.close()
    assert found["database"] is Level.FAIL
    assert found["directory"] is Level.OK
    assert "catalogue" not in found
