"""Values of every kind of column come back as they went in, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from shardkeep_service.checkpoints.models import Checkpoint, RankSession
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.database.database import Database
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Inventory
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.rows import add_place

pytestmark = BOTH_DATABASES

BIG = 2**62


def test_documents_keep_their_order_types_nesting_and_every_character(database: Database) -> None:
    place = add_place(database)
    document = {"z": 1, "a": [None, True, 0.1, -1e-300, 2**53], "text": 'päßword \\ " \u2028 \U0001f600', "": {}}
    with database.write() as session:
        session.get_one(Checkpoint, place.checkpoint_id).metrics = document
    with database.read() as session:
        found = session.get_one(Checkpoint, place.checkpoint_id)
        assert found.metrics == document
        assert list(found.metrics) == list(document)
        assert (found.report, found.abort) == (None, None)


def test_an_absent_document_is_null_in_the_database_and_no_document_null(database: Database) -> None:
    place = add_place(database)
    with database.read() as session:
        reports = select(func.count()).where(Checkpoint.id == place.checkpoint_id, Checkpoint.report.is_(None))
        missing = select(func.count()).where(RankSession.missing_chunks.is_(None))
        assert (session.scalar(reports), session.scalar(missing)) == (1, 1)


def test_bytes_and_numbers_of_62_bits_come_back(database: Database) -> None:
    place = add_place(database)
    body = bytes(range(256)) * 100
    with database.write() as session:
        session.add(Inventory(attempt_id=place.attempt_id, layout=0, rank=0, digest="0" * 64, content=body))
        session.get_one(Checkpoint, place.checkpoint_id).step = BIG
    with database.read() as session:
        content = session.scalars(select(Inventory.content)).one()
        assert isinstance(content, bytes)
        assert content == body
        step = session.scalars(select(Checkpoint.step).where(Checkpoint.step > BIG - 1)).one()
        assert type(step) is int
        assert step == BIG


def test_sums_of_sizes_are_whole_numbers(database: Database) -> None:
    place = add_place(database)
    with database.write() as session:
        for number in range(3):
            session.add(_chunk(place.project_id, place.run_id, place.checkpoint_id, number, size_bytes=2**60))
    with database.read() as session:
        total = session.scalars(select(func.sum(Chunk.size_bytes))).one()
        assert int(total) == 3 * 2**60


@pytest.mark.parametrize("times", [1, 3])
def test_a_row_is_inserted_once_and_only_the_first_time_says_so(database: Database, times: int) -> None:
    with database.write() as session:
        made = [
            insert_if_absent(session, Project, {"id": f"prj_{number}", "name": "same", "created_at": 1})
            for number in range(times)
        ]
    assert made == [True, *[False] * (times - 1)]


def _chunk(project_id: str, run_id: str, checkpoint_id: str, number: int, *, size_bytes: int) -> Chunk:
    return Chunk(
        project_id=project_id, digest=str(number) * 64, size_bytes=size_bytes, crc64="f" * 16, object_key="k",
        state="stored", verification="verified", origin_run_id=run_id, origin_checkpoint_id=checkpoint_id,
        claimed_at=BIG, stored_at=BIG,
    )  # fmt: skip
