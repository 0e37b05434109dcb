"""What manifests name, read page by page: all of it, once, whatever the sizes of the worlds."""

from __future__ import annotations

import numpy as np
import pytest

from shardkeep_service.checkpoints.chunk_ids import pack_ids
from shardkeep_service.database.database import Database
from shardkeep_service.garbage_collection import marks
from shardkeep_service.garbage_collection.marks import chunks_named_by
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.rows import add_manifest, add_place

pytestmark = BOTH_DATABASES


@pytest.mark.parametrize("at_a_time", [1, 3, 100])
def test_every_manifest_of_the_checkpoints_is_read_once_in_pages(
    database: Database, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(marks, "_MANIFESTS_AT_A_TIME", at_a_time)
    worlds = {
        add_place(database, run=f"run{number}", world_size=size).checkpoint_id: size
        for number, size in enumerate((1, 2, 7, 3, 1))
    }
    with database.write() as session:
        for number, (checkpoint, size) in enumerate(worlds.items()):
            for rank in range(size):
                add_manifest(session, checkpoint, rank, pack_ids(np.array([number, 100 + rank], np.int64)))

    found = [(named.checkpoint_id, named.chunk_ids.tolist()) for named in chunks_named_by(database, worlds)]

    expected = [
        (id_, [number, 100 + rank]) for number, (id_, size) in enumerate(worlds.items()) for rank in range(size)
    ]
    assert sorted(found) == sorted(expected)
    left_out = dict(list(worlds.items())[1:])
    assert {named.checkpoint_id for named in chunks_named_by(database, left_out)} == set(left_out)
    assert list(chunks_named_by(database, {})) == []
