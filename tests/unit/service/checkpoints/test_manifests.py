"""Manifests: checked against what is stored, counted once, and dropped when they come too late."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from sqlalchemy import update

from shardkeep.protocol import routes
from shardkeep_service.checkpoints.models import ManifestRow
from shardkeep_service.chunks.models import Chunk, ChunkState
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Packed, Part, Training, pack, weights

pytestmark = BOTH_DATABASES


def _path(checkpoint: str, rank: int) -> str:
    return routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=rank)


def test_E02_a_manifest_whose_chunks_were_never_stored_names_them_and_nothing_becomes_visible(
    training: Training,
) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)

    problem = training.service.refused("chunks_missing", "PUT", _path(checkpoint, 0), content=packed[0].manifest)

    assert problem["chunks"] == [packed[0].chunks[0][0].digest]
    assert training.latest_id() is None
    assert training.info(checkpoint)["arrived"] == 0


def test_E02_a_chunk_stored_with_another_size_or_checksum_does_not_count(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    training.upload(checkpoint, 0, packed[0])
    for change in ({"size_bytes": 1}, {"crc64": "0" * 16}, {"state": ChunkState.CONDEMNED.value}):
        with training.service.database.write() as session:
            kept = session.query(Chunk.size_bytes, Chunk.crc64, Chunk.state).one()
            session.execute(update(Chunk).values(**change))

        training.service.refused("chunks_missing", "PUT", _path(checkpoint, 0), content=packed[0].manifest)
        with training.service.database.write() as session:
            session.execute(update(Chunk).values(size_bytes=kept[0], crc64=kept[1], state=kept[2]))


def test_E164_the_same_manifest_again_is_answered_with_the_present_state(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    training.upload(checkpoint, 0, packed[0])
    first = training.hand_in(checkpoint, 0, packed[0])

    again = training.hand_in(checkpoint, 0, packed[0])

    assert first == again
    assert (first["arrived"], first["waiting_for"]) == (1, [1])
    assert training.finish(checkpoint, packed)["state"] == "committed"
    assert training.hand_in(checkpoint, 0, packed[0])["state"] == "committed"


def test_other_content_of_the_same_rank_is_refused_before_and_after_the_commit(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    other = pack(weights(11, 2)[0], rank=0, world_size=2, step=10)
    training.upload(checkpoint, 0, packed[0])
    training.hand_in(checkpoint, 0, packed[0])
    path = _path(checkpoint, 0)

    training.service.refused("save_content_disagrees", "PUT", path, content=other.manifest)
    training.finish(checkpoint, packed)
    training.service.refused("save_content_disagrees", "PUT", path, content=other.manifest)


def test_E13_a_manifest_of_another_step_world_size_or_rank_is_refused(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    mine = weights(10, 2)[0]

    for code, packed in (
        ("step_disagrees", pack(mine, rank=0, world_size=2, step=9)),
        ("world_size_disagrees", pack(mine, rank=0, world_size=3, step=10)),
        ("malformed_manifest", pack(mine, rank=1, world_size=2, step=10)),
        ("malformed_manifest", Packed(b"nonsense", ())),
        ("malformed_manifest", Packed(b"", ())),
    ):
        training.service.refused(code, "PUT", _path(checkpoint, 0), content=packed.manifest)
    training.service.refused(
        "rank_out_of_range", "PUT", _path(checkpoint, 2), content=pack(mine, rank=2, world_size=3, step=10).manifest
    )


def test_a_late_manifest_of_an_aborted_save_is_refused_and_dropped(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    training.upload(checkpoint, 0, packed[0])
    training.upload(checkpoint, 1, packed[1])
    training.hand_in(checkpoint, 0, packed[0])
    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=checkpoint), {"rank": 0, "reason": "killed"})

    problem = training.service.refused("checkpoint_aborted", "PUT", _path(checkpoint, 1), content=packed[1].manifest)

    assert "killed" in problem["detail"]
    with training.service.database.read() as session:
        assert [row.rank for row in session.query(ManifestRow)] == [0]


def test_a_rank_that_did_not_open_hands_in_nothing(training: Training) -> None:
    attempt = training.start()
    checkpoint = training.open(attempt, save=1, step=10, rank=0)["checkpoint_id"]
    packed = training.pack_all(10)
    training.upload(checkpoint, 1, packed[1])

    training.service.refused("checkpoint_not_open", "PUT", _path(checkpoint, 1), content=packed[1].manifest)


def test_the_manifest_object_is_stored_before_it_counts(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    training.upload(checkpoint, 0, packed[0])
    training.hand_in(checkpoint, 0, packed[0])

    with training.service.database.read() as session:
        [row] = session.query(ManifestRow)
    stored = bytearray(row.size_bytes)
    training.service.blob_store.read_into(row.object_key, 0, memoryview(stored))
    assert bytes(stored) == packed[0].manifest


def test_last_manifests_that_arrive_together_begin_one_validation(training: Training) -> None:
    attempt = training.start(8)
    for save in range(5):
        checkpoint = training.open_all(attempt, save=save, step=save, world_size=8)
        packed = training.pack_all(save, 8)
        for rank, one in enumerate(packed):
            training.upload(checkpoint, rank, one)
        barrier = threading.Barrier(8)

        def hand_in(
            rank: int, barrier: threading.Barrier = barrier, checkpoint: str = checkpoint, packed: list[Packed] = packed
        ) -> str:
            barrier.wait()
            return str(training.hand_in(checkpoint, rank, packed[rank])["state"])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(hand_in, range(8)))

        assert training.service.wait_until_settled(checkpoint)["state"] == "committed"
        assert training.info(checkpoint)["sequence"] == save + 1


def test_a_stored_manifest_is_given_back_byte_for_byte(training: Training) -> None:
    attempt = training.start()
    packed = training.pack_all(10)
    checkpoint = training.save(attempt, save=1, step=10, packed=packed)

    answer = training.service.send("GET", _path(checkpoint, 1))

    assert answer.content == packed[1].manifest
    training.service.refused("unknown_manifest", "GET", _path(checkpoint, 2))
    open_one = training.open_all(attempt, save=2, step=20)
    training.service.refused("checkpoint_not_committed", "GET", _path(open_one, 0))


def test_E41_E96_E17_ranks_that_own_no_tensor_take_part_with_an_empty_contribution(training: Training) -> None:
    world_size = 8
    whole = np.arange(20, dtype=np.float32).reshape(20, 1)
    attempt = training.start(world_size)
    packed = []
    for rank in range(world_size):
        rows = whole[rank * 3 : (rank + 1) * 3]
        packed.append(
            pack([Part("experts", (20, 1), min(rank * 3, 20), rows)], rank=rank, world_size=world_size, step=1)
        )

    checkpoint = training.save(attempt, save=1, step=1, world_size=world_size, packed=packed)

    assert training.info(checkpoint)["arrived"] == world_size
    assert np.array_equal(training.load(checkpoint, "experts"), whole)
    nothing = [pack([], rank=rank, world_size=world_size, step=2) for rank in range(1, world_size)]
    alone = pack([Part("experts", (20, 1), 0, whole)], rank=0, world_size=world_size, step=2)
    training.save(attempt, save=2, step=2, world_size=world_size, packed=[alone, *nothing])
