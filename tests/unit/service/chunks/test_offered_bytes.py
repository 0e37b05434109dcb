"""How many bytes a rank offered, and how many of them were present, is kept on its session while its save goes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event, update

from shardkeep.protocol.messages import ChunkOffer, NegotiateChunks
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.checkpoints.models import RankSession
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.chunks.negotiation import Negotiator
from shardkeep_service.database.database import Database
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.rows import HOUR, Place, add_place

pytestmark = BOTH_DATABASES

ADMIN = Principal("tok_0", "admin", Scope.ADMIN, None)
A, B, C = ("a" * 64, "b" * 64, "c" * 64)
BIG = 3_000_000_000


@pytest.fixture
def context(tmp_path: Path, database: Database) -> ServiceContext:
    return ServiceContext(database, MemoryBlobStore(), Settings(data_dir=tmp_path, max_chunk_bytes=BIG))


def add_stored(context: ServiceContext, place: Place, digest: str, *, size: int) -> None:
    with context.database.write() as session:
        session.add(
            Chunk(
                project_id=place.project_id, digest=digest, size_bytes=size, crc64="0" * 16, object_key=digest,
                state=ChunkState.STORED, verification="verified", origin_run_id=place.run_id,
                origin_checkpoint_id=place.checkpoint_id, claimed_at=0, stored_at=0, uploads=1,
            )
        )  # fmt: skip


def offer(
    negotiator: Negotiator, place: Place, rank: int, sizes: list[tuple[str, int]], *, principal: Principal = ADMIN
) -> None:
    offers = [ChunkOffer(digest=digest, size=size, crc64=0) for digest, size in sizes]
    negotiator.negotiate(principal, place.checkpoint_id, NegotiateChunks(rank=rank, chunks=offers))


def counted(context: ServiceContext, place: Place) -> list[tuple[int, int]]:
    """Offered and present bytes, by rank."""
    with context.database.read() as session:
        rows = session.query(RankSession).filter_by(checkpoint_id=place.checkpoint_id).order_by(RankSession.rank)
        return [(row.offered_bytes, row.present_bytes) for row in rows]


def test_each_rank_has_its_own_sums_over_all_its_requests(context: ServiceContext) -> None:
    place = add_place(context.database, world_size=3)
    add_stored(context, place, A, size=10)
    negotiator = Negotiator(context)
    assert counted(context, place) == [(0, 0)] * 3

    offer(negotiator, place, 0, [(A, 10), (B, 5)])
    offer(negotiator, place, 0, [(C, BIG)])
    offer(negotiator, place, 2, [(A, 10), (A, 10)])

    assert counted(context, place) == [(15 + BIG, 10), (0, 0), (10, 10)]


def test_requests_that_are_answered_together_are_all_counted(context: ServiceContext) -> None:
    place, other = add_place(context.database, world_size=4), add_place(context.database, run="other", world_size=4)
    add_stored(context, place, A, size=10)
    negotiator = Negotiator(context)
    wishes = [(where, rank) for where in (place, other) for rank in range(4)] * 6

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda wish: offer(negotiator, wish[0], wish[1], [(A, 10), (B, 1)]), wishes))

    assert counted(context, place) == counted(context, other) == [(6 * 11, 6 * 10)] * 4


def test_a_job_is_counted_no_present_bytes_that_it_may_not_know_of(context: ServiceContext) -> None:
    place, other = add_place(context.database), add_place(context.database, run="other")
    add_stored(context, other, A, size=10)
    job = Principal("tok_1", "job", Scope.WRITE, frozenset({place.project_id}), run_id=place.run_id)
    negotiator = Negotiator(context)

    offer(negotiator, place, 0, [(A, 10)], principal=job)
    assert counted(context, place) == [(10, 0)]

    offer(negotiator, place, 0, [(A, 10)])
    assert counted(context, place) == [(20, 10)], "a repetition counts again, as present once it is"


def test_what_is_offered_while_somebody_holds_the_session_is_counted_once_it_is_free(context: ServiceContext) -> None:
    place = add_place(context.database, world_size=2)
    negotiator = Negotiator(context)
    with ThreadPoolExecutor(1) as pool:
        with context.database.write() as session:
            mine = (RankSession.checkpoint_id == place.checkpoint_id, RankSession.rank == 0)
            session.execute(update(RankSession).where(*mine).values(missing_chunks=["held"]))
            offering = pool.submit(offer, negotiator, place, 0, [(A, 7)])
            with pytest.raises(TimeoutError):
                offering.result(0.3)
        offering.result(30)

    assert counted(context, place) == [(7, 0), (0, 0)]


def test_a_rank_without_a_session_is_answered_and_not_counted(context: ServiceContext) -> None:
    place = add_place(context.database, world_size=2)
    with context.database.write() as session:
        session.query(RankSession).filter_by(checkpoint_id=place.checkpoint_id, rank=1).delete()

    offer(Negotiator(context), place, 1, [(A, 7)])

    assert counted(context, place) == [(0, 0)]


def test_counting_renews_the_session_in_the_same_statement_and_moves_no_lease_back(context: ServiceContext) -> None:
    place = add_place(context.database, world_size=2)
    with context.database.write() as session:
        first, second = session.query(RankSession).order_by(RankSession.rank)
        first.lease_until, second.lease_until = 1, context.database.now(session) + 1000 * HOUR
        ahead = second.lease_until
    negotiator, statements = Negotiator(context), list[str]()

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if "sessions" in statement:
            statements.append(statement)

    event.listen(context.database.engine, "before_cursor_execute", note)
    for rank in range(2):
        offer(negotiator, place, rank, [(A, 7)])
    event.remove(context.database.engine, "before_cursor_execute", note)

    assert len(statements) == 2, statements
    with context.database.read() as session:
        now = context.database.now(session)
        leases = [row.lease_until for row in session.query(RankSession).order_by(RankSession.rank)]
    assert leases[0] > now
    assert leases[1] == ahead
