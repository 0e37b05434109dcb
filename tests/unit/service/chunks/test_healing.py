"""Which checkpoints a damaged chunk makes unusable, and when they come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.checkpoints.chunk_ids import pack_ids
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.healing import quarantine_checkpoints, release_healed_checkpoints
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.database.database import Database
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.rows import Place, add_manifest, add_place

pytestmark = BOTH_DATABASES


@pytest.fixture
def context(tmp_path: Path, database: Database) -> ServiceContext:
    return ServiceContext(database, MemoryBlobStore(), Settings(data_dir=tmp_path))


def add_chunk(context: ServiceContext, place: Place, name: str, state: ChunkState) -> int:
    with context.database.write() as session:
        chunk = Chunk(
            project_id=place.project_id, digest=name * 64, size_bytes=1, crc64="0" * 16, object_key=name, state=state,
            verification="verified", origin_run_id=place.run_id, origin_checkpoint_id=place.checkpoint_id, claimed_at=0,
            stored_at=0, uploads=1,
        )  # fmt: skip
        session.add(chunk)
        session.flush()
        return chunk.id


def name_chunks(context: ServiceContext, place: Place, ids: list[int], *, rank: int = 0) -> None:
    with context.database.write() as session:
        add_manifest(session, place.checkpoint_id, rank, pack_ids(np.array(sorted(ids), np.int64)))


def quarantined(context: ServiceContext, place: Place) -> bool:
    with context.database.read() as session:
        return session.get_one(Checkpoint, place.checkpoint_id).quarantined


def set_chunk_state(context: ServiceContext, chunk_id: int, state: ChunkState) -> None:
    with context.database.write() as session:
        session.get_one(Chunk, chunk_id).state = state.value


def test_only_committed_checkpoints_that_name_the_chunk_are_flagged(context: ServiceContext) -> None:
    places = [
        add_place(context.database, run=name, state=state)
        for name, state in (
            ("names", CheckpointState.COMMITTED),
            ("other", CheckpointState.COMMITTED),
            ("open", CheckpointState.OPEN),
        )
    ]
    bad, good = (add_chunk(context, places[0], name, ChunkState.STORED) for name in "ab")
    name_chunks(context, places[0], [bad, good])
    name_chunks(context, places[1], [good])
    name_chunks(context, places[2], [bad])
    set_chunk_state(context, bad, ChunkState.QUARANTINED)
    assert quarantine_checkpoints(context, places[0].project_id, [bad]) == [places[0].checkpoint_id]
    assert [quarantined(context, place) for place in places] == [True, False, False]


def test_a_checkpoint_comes_back_when_every_rank_s_chunks_are_live_again(context: ServiceContext) -> None:
    place = add_place(context.database, state=CheckpointState.COMMITTED, world_size=2)
    chunks = [add_chunk(context, place, name, ChunkState.QUARANTINED) for name in "ab"]
    for rank, chunk in enumerate(chunks):
        name_chunks(context, place, [chunk], rank=rank)
    quarantine_checkpoints(context, place.project_id, chunks)
    set_chunk_state(context, chunks[0], ChunkState.STORED)
    assert release_healed_checkpoints(context, place.project_id) == []
    assert quarantined(context, place)
    set_chunk_state(context, chunks[1], ChunkState.STORED)
    assert release_healed_checkpoints(context, place.project_id) == [place.checkpoint_id]
    assert not quarantined(context, place)


def test_every_change_of_the_flag_counts_as_a_version(context: ServiceContext) -> None:
    place = add_place(context.database, state=CheckpointState.COMMITTED)
    chunk = add_chunk(context, place, "a", ChunkState.QUARANTINED)
    name_chunks(context, place, [chunk])
    for _ in range(2):
        quarantine_checkpoints(context, place.project_id, [chunk])
    with context.database.read() as session:
        assert session.get_one(Checkpoint, place.checkpoint_id).version == 2
