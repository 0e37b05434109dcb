"""Whose a bucket is, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.catalogue.owner import BucketRefused, claim_bucket, find_owner, take_over_bucket
from shardkeep_service.catalogue.record_keys import owner_key
from shardkeep_service.database.database import Database
from shardkeep_service.database.tables import METADATA
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.unit.service.rows import add_place


class Catalogues:
    """Databases beside one bucket."""

    def __init__(self, directory: Path) -> None:
        self.bucket = MemoryBlobStore()
        self._directory = directory
        self._made: list[Database] = []

    def new(self) -> ServiceContext:
        database = Database(f"sqlite:///{self._directory / f'{len(self._made)}.db'}")
        METADATA.create_all(database.engine)
        self._made.append(database)
        return ServiceContext(database, self.bucket, Settings(data_dir=self._directory))

    def close(self) -> None:
        for database in self._made:
            database.close()


@pytest.fixture
def catalogues(tmp_path: Path) -> Iterator[Catalogues]:
    made = Catalogues(tmp_path)
    yield made
    made.close()


def test_the_first_start_claims_an_empty_bucket_and_later_ones_find_it_theirs(catalogues: Catalogues) -> None:
    context = catalogues.new()

    first, second = claim_bucket(context), claim_bucket(context)

    owner = find_owner(catalogues.bucket)
    assert owner is not None
    assert first == second == owner.catalogue_id


def test_another_catalogue_is_refused_and_told_what_to_do(catalogues: Catalogues) -> None:
    claim_bucket(catalogues.new())

    with pytest.raises(BucketRefused, match="rebuild"):
        claim_bucket(catalogues.new())


def test_an_empty_database_does_not_claim_a_bucket_that_holds_something(catalogues: Catalogues) -> None:
    catalogues.bucket.put("prj_1/commits/x", memoryview(b"x"))

    with pytest.raises(BucketRefused, match="the database is empty"):
        claim_bucket(catalogues.new())


def test_a_database_from_before_the_marker_claims_its_bucket(catalogues: Catalogues) -> None:
    context = catalogues.new()
    place = add_place(context.database)
    catalogues.bucket.put(f"{place.project_id}/commits/x", memoryview(b"x"))

    assert claim_bucket(context).startswith("cat_")


def test_who_took_the_bucket_over_owns_it_and_the_one_before_is_refused(catalogues: Catalogues) -> None:
    before, after = catalogues.new(), catalogues.new()
    claim_bucket(before)

    taken = take_over_bucket(after)

    assert claim_bucket(after) == taken == take_over_bucket(after)
    with pytest.raises(BucketRefused, match="term 2"):
        claim_bucket(before)


def test_a_damaged_marker_is_refused_until_it_is_claimed_again(catalogues: Catalogues) -> None:
    context = catalogues.new()
    claim_bucket(context)
    body = bytearray(catalogues.bucket._objects[owner_key(1)])
    body[20] ^= 1
    catalogues.bucket._objects[owner_key(1)] = bytes(body)

    with pytest.raises(BucketRefused, match="damaged"):
        claim_bucket(context)

    taken = take_over_bucket(context)
    assert claim_bucket(context) == taken
