from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import CheckpointState, ChunkOffer, NegotiateChunks
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.chunks.negotiation import Negotiator
from shardkeep_service.database.database import Database
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.rows import Place, add_place

pytestmark = BOTH_DATABASES

ADMIN = Principal("tok_0", "admin", Scope.ADMIN, None)


@pytest.fixture
def context(tmp_path: Path, database: Database) -> ServiceContext:
    return ServiceContext(database, MemoryBlobStore(), Settings(data_dir=tmp_path))


def add_stored(context: ServiceContext, place: Place, digest: str, *, verification: str = "verified") -> None:
    with context.database.write() as session:
        session.add(
            Chunk(
                project_id=place.project_id, digest=digest, size_bytes=1, crc64="0" * 16, object_key=digest,
                state=ChunkState.STORED, verification=verification, origin_run_id=place.run_id,
                origin_checkpoint_id=place.checkpoint_id, claimed_at=0, stored_at=0, uploads=1,
            )
        )  # fmt: skip


Wish = tuple[Principal, str, NegotiateChunks]


def offering(place: Place, rank: int, *digests: str, size: int = 1) -> Wish:
    offers = [ChunkOffer(digest=digest, size=size, crc64=0) for digest in digests]
    return ADMIN, place.checkpoint_id, NegotiateChunks(rank=rank, chunks=offers)


def outcome(negotiator: Negotiator, wish: Wish) -> list[bool] | str:
    try:
        return [answer.present for answer in negotiator.negotiate(*wish).chunks]
    except Refusal as refusal:
        return refusal.code


def test_what_arrives_together_is_answered_one_by_one(context: ServiceContext) -> None:
    place = add_place(context.database, world_size=2)
    other = add_place(context.database, run="other")
    aborted = add_place(context.database, run="aborted", state=CheckpointState.ABORTED)
    add_stored(context, place, "a" * 64)
    add_stored(context, place, "b" * 64, verification="declared")
    wishes = [
        offering(place, 0, "a" * 64, "b" * 64, "c" * 64),
        offering(place, 2, "a" * 64),
        offering(aborted, 0, "a" * 64),
        offering(other, 0, "b" * 64, "a" * 64),
        offering(place, 1, "a" * 64, size=2),
    ] * 8
    negotiator = Negotiator(context)

    with ThreadPoolExecutor(len(wishes)) as pool:
        outcomes = list(pool.map(lambda wish: outcome(negotiator, wish), wishes))

    assert (
        outcomes
        == [
            [True, True, False],
            ErrorCode.RANK_OUT_OF_RANGE,
            ErrorCode.CHECKPOINT_ABORTED,
            [False, True],  # not verified by digest yet: only the run that stored it may reuse it
            ErrorCode.MALFORMED_REQUEST,
        ]
        * 8
    )


def test_present_chunks_are_claimed(context: ServiceContext) -> None:
    place = add_place(context.database)
    add_stored(context, place, "a" * 64)

    Negotiator(context).negotiate(*offering(place, 0, "a" * 64))

    with context.database.read() as session:
        assert session.query(Chunk).one().claimed_at > 0


def test_a_fresh_claim_is_left_as_it_is_and_an_old_one_is_renewed(context: ServiceContext) -> None:
    place = add_place(context.database)
    fresh, old = "a" * 64, "b" * 64
    add_stored(context, place, fresh)
    add_stored(context, place, old)
    with context.database.write() as session:
        now = context.database.now(session)
        recently = now - micros(context.settings.claim_repeat_seconds / 2)
        session.query(Chunk).filter_by(digest=fresh).one().claimed_at = recently

    answer = Negotiator(context).negotiate(*offering(place, 0, fresh, old))

    assert [chunk.present for chunk in answer.chunks] == [True, True]
    with context.database.read() as session:
        claimed = {chunk.digest: chunk.claimed_at for chunk in session.query(Chunk)}
    assert claimed[fresh] == recently
    assert claimed[old] >= now


def test_a_chunk_that_is_not_live_is_not_present_however_fresh_its_claim(context: ServiceContext) -> None:
    place = add_place(context.database)
    add_stored(context, place, "a" * 64)
    with context.database.write() as session:
        chunk = session.query(Chunk).one()
        chunk.claimed_at, chunk.state = context.database.now(session), ChunkState.CONDEMNED.value

    answer = Negotiator(context).negotiate(*offering(place, 0, "a" * 64))

    assert [chunk.present for chunk in answer.chunks] == [False]
