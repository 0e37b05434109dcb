"""A database restored from an old backup beside a newer bucket: nothing is collected until a rebuild has caught up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep.protocol import routes
from shardkeep_service.catalogue.commit_records import write_commit_records
from shardkeep_service.catalogue.rebuilding.rebuild import rebuild
from shardkeep_service.garbage_collection.bucket_check import CollectionStopped
from shardkeep_service.garbage_collection.collector import steps
from tests.failures.collection.database_copies import put_copy, take_copy
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

MONTH = 30 * 86_400.0


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    with LocalService(tmp_path / "service") as service:
        yield Training(service)


def collect(training: Training) -> None:
    for _ in steps(training.service.context):
        pass


def test_a_commit_the_old_database_does_not_know_stops_collection_until_a_rebuild(training: Training) -> None:
    attempt = training.start()
    training.save(attempt, save=1, step=1)
    backup = take_copy(training.service.database)
    second = training.save(attempt, save=2, step=2)
    write_commit_records(training.service.context)
    objects = {blob.key for blob in training.service.blob_store.list("")}

    put_copy(training.service.database, backup)
    for _ in range(3):
        training.service.advance(MONTH)
        with pytest.raises(CollectionStopped, match="rebuild --add"):
            collect(training)

    assert objects <= {blob.key for blob in training.service.blob_store.list("")}
    rebuild(training.service.context, add=True)
    write_commit_records(training.service.context)
    for _ in range(3):
        training.service.advance(MONTH)
        collect(training)
    assert training.latest_id() == second
    assert training.load(second).shape == (4, 4)


def test_a_restore_the_old_database_does_not_know_stops_collection_too(training: Training) -> None:
    attempt = training.start()
    first = training.save(attempt, save=1, step=1)
    training.save(attempt, save=2, step=2)
    training.change("DELETE", routes.CHECKPOINT, first)
    write_commit_records(training.service.context)
    backup = take_copy(training.service.database)
    training.change("POST", routes.RESTORE, first)
    write_commit_records(training.service.context)

    put_copy(training.service.database, backup)
    training.service.advance(MONTH)
    with pytest.raises(CollectionStopped):
        collect(training)

    assert training.info(first)["state"] == "deleted"


def test_a_project_that_only_the_bucket_knows_stops_collection(training: Training) -> None:
    backup = take_copy(training.service.database)
    Training(training.service, project="newer")
    write_commit_records(training.service.context)
    put_copy(training.service.database, backup)

    with pytest.raises(CollectionStopped, match="1 projects"):
        collect(training)
