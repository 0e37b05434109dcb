"""Negotiating direct uploads, on both databases: who gets which key, and what becomes of pending chunks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import update

from shardkeep.format.chunks import chunk_ref
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import AskReadTargets, CheckpointState, ChunkAnswer, ChunkOffer, NegotiateChunks
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.blob_store.presigner import SignedRequest, StoreAbilities
from shardkeep_service.checkpoints.direct_chunks import accept_uploaded
from shardkeep_service.checkpoints.models import RankSession
from shardkeep_service.chunks.ingest import ChunkIngest
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.chunks.negotiation import Negotiator
from shardkeep_service.chunks.reading import read_targets
from shardkeep_service.database.database import Database
from shardkeep_service.database.tables import METADATA
from shardkeep_service.errors import Refusal
from shardkeep_service.garbage_collection.collector import steps as collection_steps
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.servers.postgres import Postgres
from tests.unit.service.rows import Place, add_place, set_state

ADMIN = Principal("tok_0", "admin", Scope.ADMIN, None)
STORE = "https://store.example/bucket/"


class KeySigner:
    """Signs nothing: the URL is the key, so that tests see which key was given out."""

    def put(self, key: str, *, size_bytes: int, crc64: int, lifetime_seconds: int) -> SignedRequest:
        headers = {"content-length": str(size_bytes), "x-crc64": f"{crc64:016x}"}
        return SignedRequest("PUT", STORE + key, headers, datetime.now(UTC) + timedelta(seconds=lifetime_seconds))

    def get(self, key: str, *, lifetime_seconds: int) -> SignedRequest:
        return SignedRequest("GET", STORE + key, {}, datetime.now(UTC) + timedelta(seconds=lifetime_seconds))


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'x.db'}"
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        url = postgres.new_database()
    opened = Database(url)
    METADATA.create_all(opened.engine)
    yield opened
    opened.close()


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Iterator[ServiceContext]:
    made = make_context(database, tmp_path)
    yield made
    made.pools.close()


def make_context(database: Database, tmp_path: Path, *, direct: str = "auto", enforced: bool = True) -> ServiceContext:
    settings = Settings(data_dir=tmp_path, direct=direct)
    abilities = StoreAbilities(presigned_checksum_enforced=enforced)
    return ServiceContext(
        database, MemoryBlobStore(), settings, presigner=KeySigner(), find_abilities=lambda: abilities
    )


def offer(data: bytes) -> ChunkOffer:
    ref = chunk_ref([data])
    return ChunkOffer(digest=ref.digest, size=ref.size_bytes, crc64=ref.crc64)


def negotiate(
    context: ServiceContext, place: Place, *bodies: bytes, rank: int = 0, direct: bool = True
) -> list[ChunkAnswer]:
    request = NegotiateChunks(rank=rank, chunks=[offer(data) for data in bodies], direct=direct)
    return Negotiator(context).negotiate(ADMIN, place.checkpoint_id, request).chunks


def key_of(answer: ChunkAnswer) -> str:
    """The object key of a direct target, or "streamed"."""
    assert answer.target is not None
    return answer.target.url.removeprefix(STORE) if answer.target.url.startswith(STORE) else "streamed"


def send(context: ServiceContext, answer: ChunkAnswer, data: bytes) -> None:
    """What a client does with a direct target."""
    context.blob_store.put(key_of(answer), memoryview(data))


def stream(context: ServiceContext, place: Place, data: bytes) -> bool:
    ingest, wanted = ChunkIngest(context), offer(data)
    upload = ingest.admit(ADMIN, place.checkpoint_id, digest=wanted.digest, crc64=f"{wanted.crc64:016x}", rank=None)
    ingest.verify(upload, memoryview(data))
    return ingest.store(upload, memoryview(data))


def validate(context: ServiceContext, place: Place) -> None:
    """The part of a validation that looks for direct uploads."""
    with context.database.read() as session:
        ids = sorted(chunk.id for chunk in session.query(Chunk))
    accept_uploaded(context, place.project_id, place.checkpoint_id, np.array(ids, np.int64), keep_alive=lambda: None)


def row(context: ServiceContext, data: bytes) -> Chunk:
    with context.database.read() as session:
        return session.query(Chunk).filter_by(digest=offer(data).digest).one()


def test_a_new_chunk_gets_a_key_under_its_checkpoint_and_a_pending_row(context: ServiceContext) -> None:
    place = add_place(context.database)

    [answer] = negotiate(context, place, b"new")

    prefix = f"{place.project_id}/chunks/{place.checkpoint_id[-2:]}/{place.checkpoint_id}/"
    assert key_of(answer) == f"{prefix}{answer.digest}.1"
    assert answer.target is not None
    assert answer.target.headers["content-length"] == "3"
    assert answer.target.expires_at is not None
    kept = row(context, b"new")
    assert (kept.state, kept.verification, kept.size_bytes) == ("pending", "declared", 3)
    assert (kept.origin_checkpoint_id, kept.object_key) == (place.checkpoint_id, key_of(answer))


def test_a_thousand_offers_are_reserved_in_one_request(context: ServiceContext) -> None:
    place = add_place(context.database)
    bodies = [number.to_bytes(4, "big") for number in range(1000)]

    answers = negotiate(context, place, *bodies)

    assert [answer.digest for answer in answers] == [offer(data).digest for data in bodies]
    assert len({key_of(answer) for answer in answers} - {"streamed"}) == 1000


def test_a_pending_chunk_is_present_for_nobody_and_cannot_be_read(context: ServiceContext) -> None:
    place = add_place(context.database, world_size=2)
    committed = add_place(context.database, run="other", state=CheckpointState.COMMITTED)
    [first] = negotiate(context, place, b"pending")

    [again] = negotiate(context, place, b"pending", rank=1)

    assert not again.present
    assert key_of(again) == key_of(first), "two ranks with the same chunk send it to one key"
    with pytest.raises(Refusal) as refused:
        read_targets(context, ADMIN, committed.checkpoint_id, AskReadTargets(digests=[first.digest]))
    assert refused.value.code == ErrorCode.UNKNOWN_CHUNK


def test_a_chunk_pending_for_another_open_checkpoint_is_streamed_and_serves_both(context: ServiceContext) -> None:
    first, second = add_place(context.database), add_place(context.database, run="other")
    [mine] = negotiate(context, first, b"same")

    [theirs] = negotiate(context, second, b"same")
    assert key_of(theirs) == "streamed"
    assert stream(context, second, b"same")
    kept = row(context, b"same")
    send(context, mine, b"same")
    validate(context, first)

    after = row(context, b"same")
    assert (after.state, after.verification) == ("stored", "verified")
    assert after.object_key == kept.object_key, "what came first stays; the late direct upload is garbage"
    assert after.origin_checkpoint_id == second.checkpoint_id


def test_a_streamed_upload_after_the_promotion_of_a_direct_one_keeps_one_live_row(context: ServiceContext) -> None:
    first, second = add_place(context.database), add_place(context.database, run="other")
    [mine] = negotiate(context, first, b"same")
    negotiate(context, second, b"same")
    send(context, mine, b"same")
    validate(context, first)
    assert row(context, b"same").verification == "declared"

    assert stream(context, second, b"same"), "another run may not rely on a declared chunk"

    after = row(context, b"same")
    assert (after.state, after.verification) == ("stored", "verified")
    assert context.blob_store.size(after.object_key) == 4
    assert after.object_key != key_of(mine)


def test_a_chunk_sent_directly_and_streamed_by_the_same_checkpoint_has_one_row(context: ServiceContext) -> None:
    place = add_place(context.database)
    [answer] = negotiate(context, place, b"twice")
    send(context, answer, b"twice")
    [fallback] = negotiate(context, place, b"twice", direct=False)
    assert key_of(fallback) == "streamed"
    assert stream(context, place, b"twice")
    assert not stream(context, place, b"twice")
    validate(context, place)

    assert row(context, b"twice").state == "stored"
    assert negotiate(context, place, b"twice")[0].present


@pytest.mark.parametrize("ending", [CheckpointState.ABORTED, CheckpointState.COMMITTED])
def test_what_a_finished_checkpoint_left_pending_is_taken_over_under_a_new_key(
    context: ServiceContext, ending: CheckpointState
) -> None:
    first, second = add_place(context.database), add_place(context.database, run="other")
    bodies = [b"left", b"behind"]
    old = negotiate(context, first, *bodies)
    set_state(context.database, first.checkpoint_id, ending)

    new = negotiate(context, second, *bodies)

    assert [key_of(answer).rpartition("/")[2] for answer in new] == [f"{answer.digest}.2" for answer in old]
    assert all(second.checkpoint_id in key_of(answer) for answer in new)
    send(context, old[0], b"left")  # too late: garbage
    send(context, new[0], b"left")
    validate(context, second)
    assert row(context, b"left").state == "stored"
    assert row(context, b"left").object_key == key_of(new[0])
    assert row(context, b"behind").state == "pending"


def test_what_did_not_come_or_came_cut_is_pending_under_a_key_never_used_before(context: ServiceContext) -> None:
    place = add_place(context.database)
    gone, cut, whole = negotiate(context, place, b"gone", b"cut", b"whole")
    send(context, cut, b"cu")
    send(context, whole, b"whole")

    validate(context, place)

    assert [row(context, data).state for data in (b"gone", b"cut", b"whole")] == ["pending", "pending", "stored"]
    again = negotiate(context, place, b"gone", b"cut", b"whole")
    assert again[2].present
    assert [key_of(answer)[-2:] for answer in again[:2]] == [".2", ".2"]
    send(context, gone, b"gone")  # late, to the old key
    send(context, again[1], b"cut")
    validate(context, place)
    assert [row(context, data).state for data in (b"gone", b"cut")] == ["pending", "stored"]


def test_a_validation_that_was_taken_over_takes_no_key_from_the_new_one(context: ServiceContext) -> None:
    place = add_place(context.database)
    [lost] = negotiate(context, place, b"lost")
    listed, go_on = threading.Event(), threading.Event()
    listing = context.blob_store.list

    def slow(prefix: str) -> Iterator[object]:
        found = list(listing(prefix))
        listed.set()
        assert go_on.wait(20)
        yield from found

    with ThreadPoolExecutor(1) as pool:
        context.blob_store.list = slow  # type: ignore[method-assign,assignment]
        stale = pool.submit(validate, context, place)
        assert listed.wait(20)
        context.blob_store.list = listing  # type: ignore[method-assign]
        validate(context, place)  # the one that took over: the ranks are told, and negotiate
        [again] = negotiate(context, place, b"lost")
        go_on.set()
        stale.result(20)
    assert key_of(again) != key_of(lost)
    assert row(context, b"lost").object_key == key_of(again)


def test_where_the_store_does_not_enforce_checksums_auto_streams_and_always_reads_each_chunk(
    database: Database, tmp_path: Path
) -> None:
    place = add_place(database)
    streamed = make_context(database, tmp_path, enforced=False)
    assert key_of(negotiate(streamed, place, b"x")[0]) == "streamed"
    context = make_context(database, tmp_path, direct="always", enforced=False)
    good, bad = negotiate(context, place, b"good", b"evil")
    send(context, good, b"good")
    send(context, bad, b"oops")

    validate(context, place)

    assert (row(context, b"good").state, row(context, b"good").verification) == ("stored", "verified")
    assert row(context, b"good").verified_at is not None
    assert row(context, b"evil").state == "pending"
    assert key_of(negotiate(context, place, b"evil")[0]).endswith(".2")


def test_while_the_store_cannot_be_probed_auto_streams(database: Database, tmp_path: Path) -> None:
    def fail() -> StoreAbilities:
        raise BlobStoreUnavailable("no answer")

    context = ServiceContext(
        database, MemoryBlobStore(), Settings(data_dir=tmp_path), presigner=KeySigner(), find_abilities=fail
    )
    assert key_of(negotiate(context, add_place(database), b"x")[0]) == "streamed"


def test_never_streams_whatever_the_store_can(database: Database, tmp_path: Path) -> None:
    context = make_context(database, tmp_path, direct="never")
    assert key_of(negotiate(context, add_place(database), b"x")[0]) == "streamed"


def test_another_size_or_checksum_under_a_pending_name_is_streamed_where_the_digest_decides(
    context: ServiceContext,
) -> None:
    place = add_place(context.database, world_size=2)
    wrong = ChunkOffer(digest=offer(b"true").digest, size=4, crc64=1)
    request = NegotiateChunks(rank=1, chunks=[wrong])
    [lie] = Negotiator(context).negotiate(ADMIN, place.checkpoint_id, request).chunks
    assert key_of(lie) != "streamed"

    [answer] = negotiate(context, place, b"true")

    assert key_of(answer) == "streamed"
    assert stream(context, place, b"true")
    assert row(context, b"true").crc64 == f"{offer(b'true').crc64:016x}"


@pytest.mark.parametrize("state", [ChunkState.QUARANTINED, ChunkState.CONDEMNED, ChunkState.LOST])
def test_a_chunk_that_is_not_live_is_streamed_which_heals_it(context: ServiceContext, state: ChunkState) -> None:
    place = add_place(context.database)
    stream(context, place, b"once")
    with context.database.write() as session:
        session.query(Chunk).one().state = state.value

    [answer] = negotiate(context, place, b"once")

    assert key_of(answer) == "streamed"
    assert stream(context, place, b"once")
    assert row(context, b"once").state == "stored"


def test_ranks_that_offer_at_once_agree_on_every_key(context: ServiceContext) -> None:
    place = add_place(context.database, world_size=8)
    other = make_context(context.database, context.settings.data_dir)  # another replica
    bodies = [bytes([number]) for number in range(50)]
    negotiators = [Negotiator(context), Negotiator(other)]

    def ask(rank: int) -> list[str]:
        order = bodies[rank:] + bodies[:rank]
        request = NegotiateChunks(rank=rank, chunks=[offer(data) for data in order])
        answers = negotiators[rank % 2].negotiate(ADMIN, place.checkpoint_id, request).chunks
        return sorted(key_of(answer) for answer in answers)

    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(ask, range(8)))

    assert all(found == keys[0] for found in keys)
    assert len(set(keys[0])) == 50
    assert "streamed" not in keys[0]


def test_live_chunks_are_read_directly_and_damaged_ones_where_they_are_refused(context: ServiceContext) -> None:
    place = add_place(context.database)
    stream(context, place, b"live")
    stream(context, place, b"hurt")
    with context.database.write() as session:
        session.query(Chunk).filter_by(digest=offer(b"hurt").digest).one().state = ChunkState.QUARANTINED.value
    set_state(context.database, place.checkpoint_id, CheckpointState.COMMITTED)
    digests = [offer(b"live").digest, offer(b"hurt").digest]

    live, hurt = read_targets(context, ADMIN, place.checkpoint_id, AskReadTargets(digests=digests)).targets
    plain = read_targets(context, ADMIN, place.checkpoint_id, AskReadTargets(digests=digests, direct=False)).targets

    assert (live.method, live.url) == ("GET", STORE + row(context, b"live").object_key)
    assert hurt.url.startswith("/v1/")
    assert all(target.url.startswith("/v1/") for target in plain)


def test_E157_what_a_finished_checkpoint_left_pending_is_collected_and_what_an_open_one_waits_for_is_not(
    context: ServiceContext,
) -> None:
    ended, going_on = add_place(context.database), add_place(context.database, run="other")
    came, _ = negotiate(context, ended, b"came", b"never came")
    send(context, came, b"came")
    [waited_for] = negotiate(context, going_on, b"waited for")
    send(context, waited_for, b"waited for")
    set_state(context.database, ended.checkpoint_id, CheckpointState.ABORTED)
    long_ago = update(Chunk).where(Chunk.origin_checkpoint_id == ended.checkpoint_id)

    for moment in ({"claimed_at": 0}, {"condemned_at": 0}, {}):
        if moment:
            with context.database.write() as session:
                session.execute(long_ago.values(moment))
        for _ in collection_steps(context):
            pass

    assert [info.key for info in context.blob_store.list(f"{ended.project_id}/")] == [key_of(waited_for)]
    with context.database.read() as session:
        assert [chunk.digest for chunk in session.query(Chunk)] == [waited_for.digest]
    validate(context, going_on)
    assert row(context, b"waited for").state == "stored"


def test_what_goes_directly_is_counted_as_offered_and_as_present_once_validation_has_found_it(
    context: ServiceContext,
) -> None:
    place = add_place(context.database, world_size=2)
    (answer,) = negotiate(context, place, b"0123456789", rank=1)
    send(context, answer, b"0123456789")
    validate(context, place)

    negotiate(context, place, b"0123456789", b"more", rank=1)

    with context.database.read() as session:
        rows = session.query(RankSession).order_by(RankSession.rank)
        assert [(row.offered_bytes, row.present_bytes) for row in rows] == [(0, 0), (24, 10)]
