"""The longest a checkpoint may be open: after it expiry aborts it, and no manifest is counted even before."""

from __future__ import annotations

from sqlalchemy import select, update

from shardkeep.protocol import routes
from shardkeep_service.checkpoints.expiry import expire_checkpoints
from shardkeep_service.checkpoints.models import RankSession
from shardkeep_service.chunks.models import Chunk
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES

LIMIT_SECONDS = 21_600


def keep_alive(training: Training) -> None:
    """Ranks that beat all the time."""
    with training.service.database.write() as session:
        session.execute(update(RankSession).values(lease_until=training.service.database.now(session) + 10**12))


def test_a_save_that_stays_open_too_long_is_aborted_however_alive_its_ranks(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=1)
    keep_alive(training)
    training.service.advance(LIMIT_SECONDS - 60)
    assert expire_checkpoints(training.service.context) == []

    training.service.advance(120)
    assert expire_checkpoints(training.service.context) == [checkpoint]

    abort = training.info(checkpoint)["abort"]
    assert abort["code"] == "open_too_long"
    assert "21600 s" in abort["reason"]


def test_a_manifest_that_comes_too_late_is_refused_though_expiry_did_not_run(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=1)
    packed = training.pack_all(1)
    training.upload(checkpoint, 0, packed[0])
    keep_alive(training)
    training.service.advance(LIMIT_SECONDS + 60)

    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    problem = training.service.refused("checkpoint_aborted", "PUT", path, content=packed[0].manifest)

    assert problem["abort"]["code"] == "open_too_long"
    assert training.info(checkpoint)["state"] == "aborted"


def test_a_manifest_claims_what_it_names_where_nobody_did_lately(training: Training) -> None:
    attempt = training.start()
    packed = training.pack_all(1)
    training.save(attempt, save=1, step=1, packed=packed)
    training.service.advance(4000)
    second = training.start()
    checkpoint = training.open_all(second, save=1, step=1)
    for rank, one in enumerate(packed):
        training.hand_in(checkpoint, rank, one)

    with training.service.database.read() as session:
        now = training.service.database.now(session)
        assert all(now - claimed < 10**9 for claimed in session.scalars(select(Chunk.claimed_at)))


def test_a_manifest_that_names_a_condemned_chunk_is_told_to_upload_it(training: Training) -> None:
    attempt = training.start()
    packed = training.pack_all(1)
    training.save(attempt, save=1, step=1, packed=packed)
    training.service.advance(4000)
    checkpoint = training.open_all(training.start(), save=1, step=1)
    with training.service.database.write() as session:
        session.execute(update(Chunk).values(state="condemned", condemned_at=1))

    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    problem = training.service.refused("chunks_missing", "PUT", path, content=packed[0].manifest)
    assert problem["chunks"] == [ref.digest for ref, _ in packed[0].chunks]
    assert training.finish(checkpoint, packed)["state"] == "committed"
