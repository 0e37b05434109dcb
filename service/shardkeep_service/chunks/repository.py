"""SQL on chunks. Look-ups take thousands of digests and are cut into batches that any database takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from shardkeep_service.chunks.models import Chunk, ChunkState, Verification

_BATCH: Final = 1_000
Item = TypeVar("Item")


def rows_of(session: Session, project_id: str, digests: Sequence[str]) -> dict[str, Chunk]:
    """The project's chunks among `digests`, in any state, by digest."""
    found: dict[str, Chunk] = {}
    for batch in _batches(digests):
        query = select(Chunk).where(Chunk.project_id == project_id, Chunk.digest.in_(batch))
        found.update((chunk.digest, chunk) for chunk in session.scalars(query))
    return found


def row_of(session: Session, project_id: str, digest: str) -> Chunk | None:
    """The project's chunk of that digest, in any state."""
    return session.scalars(select(Chunk).where(Chunk.project_id == project_id, Chunk.digest == digest)).one_or_none()


def rows_by_id(session: Session, ids: Iterable[int]) -> dict[int, Chunk]:
    """Chunks by id."""
    found: dict[int, Chunk] = {}
    for batch in _batches(list(ids)):
        found.update((chunk.id, chunk) for chunk in session.scalars(select(Chunk).where(Chunk.id.in_(batch))))
    return found


def claim(session: Session, ids: Iterable[int], now: int) -> None:
    """Notes that an open checkpoint is about to name these chunks, so that collection leaves them."""
    for batch in _batches(list(ids)):
        session.execute(
            update(Chunk).where(Chunk.id.in_(batch)).values(claimed_at=now),
            execution_options={"synchronize_session": False},
        )


@dataclass(frozen=True, slots=True)
class PresentChunk:
    """What a present chunk is stored with; `crc64` has 16 hexadecimal digits."""

    size_bytes: int
    crc64: str


def claim_present(
    session: Session, *, project_id: str, run_id: str, digests: Sequence[str], now: int
) -> dict[str, PresentChunk]:
    """Claims, in the statement that finds them, the chunks this run may reuse, by digest.

    Reusable is what is stored and live, and either verified by digest or stored by the same run.
    """
    found: dict[str, PresentChunk] = {}
    for batch in _batches(digests):
        statement = (
            update(Chunk)
            .where(
                Chunk.project_id == project_id,
                Chunk.digest.in_(batch),
                Chunk.state.concat("") == ChunkState.STORED.value,  # or SQLite walks the index on state: every chunk
                or_(Chunk.verification == Verification.VERIFIED, Chunk.origin_run_id == run_id),
            )
            .values(claimed_at=now)
            .returning(Chunk.digest, Chunk.size_bytes, Chunk.crc64)
        )
        for row in session.execute(statement, execution_options={"synchronize_session": False}):
            found[row.digest] = PresentChunk(row.size_bytes, row.crc64)
    return found


def locked_row_of(session: Session, project_id: str, digest: str) -> Chunk | None:
    """Like `row_of`, locked until the end of the transaction."""
    query = select(Chunk).where(Chunk.project_id == project_id, Chunk.digest == digest).with_for_update()
    return session.scalars(query).one_or_none()


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
