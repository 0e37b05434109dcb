"""Sets of chunk ids in bounded memory: a byte for each id of a window, and windows one after another.

One window holds 67 million chunks: a petabyte. So one pass over the manifests is the rule, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, func, select, tuple_

from shardkeep_service.checkpoints.chunk_ids import Ids, unpack_ids
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.database.database import Database

WINDOW_IDS: Final = 1 << 26
_MANIFESTS_AT_A_TIME: Final = 100


@dataclass(frozen=True, slots=True)
class Window:
    """Chunk ids [start, end)."""

    start: int
    end: int

    def cut(self, ids: Ids) -> Ids:
        """Those of sorted ids that lie in it."""
        return ids[np.searchsorted(ids, self.start) : np.searchsorted(ids, self.end)]


class Marks:
    """A set of ids of one window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._marked: npt.NDArray[np.bool_] = np.zeros(window.end - window.start, np.bool_)

    def add(self, ids: Ids) -> None:
        """Marks those of these sorted ids that lie in the window."""
        self._marked[self._window.cut(ids) - self._window.start] = True

    def unmarked(self, ids: Ids) -> Ids:
        """Those of these ids, all of the window, that are not marked."""
        return ids[~self._marked[ids - self._window.start]]

    def only_here(self, others: Marks) -> Ids:
        """The ids marked here and not there, sorted."""
        return np.flatnonzero(self._marked & ~others._marked) + self._window.start


@dataclass(frozen=True, slots=True)
class NamedChunks:
    """The chunks that one manifest names."""

    checkpoint_id: str
    chunk_ids: Ids


def windows_of(database: Database, *conditions: ColumnElement[bool]) -> Iterator[Window]:
    """Windows over the ids of the chunks that fulfil the conditions; those that appear meanwhile may be left out."""
    with database.read() as session:
        ids = select(func.coalesce(func.min(Chunk.id), 0), func.coalesce(func.max(Chunk.id), -1)).where(*conditions)
        first, last = session.execute(ids).one()
    for start in range(first, last + 1, WINDOW_IDS):
        yield Window(start, min(start + WINDOW_IDS, last + 1))


@dataclass(frozen=True, slots=True)
class _ManifestPage:
    """The manifests of some checkpoints, of ranks [first, end)."""

    checkpoint_ids: Sequence[str]
    first: int
    end: int


def chunks_named_by(database: Database, world_sizes: Mapping[str, int]) -> Iterator[NamedChunks]:
    """What the manifests of these checkpoints name, page by page; `named_chunks` looks for the checkpoints too.

    Where they are few of many, or on SQLite, which would look for all of them again for each page, this is far cheaper.
    """
    query = select(ManifestRow.checkpoint_id, ManifestRow.rank, ManifestRow.chunk_ids)
    for page in _pages(world_sizes):
        of_page = query.where(
            ManifestRow.checkpoint_id.in_(page.checkpoint_ids),
            ManifestRow.rank >= page.first,
            ManifestRow.rank < page.end,
        )
        with database.read() as session:
            rows = session.execute(of_page).all()
        for checkpoint_id, _, packed in rows:
            yield NamedChunks(checkpoint_id, unpack_ids(packed))


def _pages(world_sizes: Mapping[str, int]) -> Iterator[_ManifestPage]:
    """Pages of at most `_MANIFESTS_AT_A_TIME` manifests each."""
    group: list[str] = []
    ranks = 0
    for checkpoint_id, world_size in world_sizes.items():
        if group and ranks + world_size > _MANIFESTS_AT_A_TIME:
            yield _ManifestPage(group, 0, _MANIFESTS_AT_A_TIME)
            group, ranks = [], 0
        if world_size > _MANIFESTS_AT_A_TIME:
            for first in range(0, world_size, _MANIFESTS_AT_A_TIME):
                yield _ManifestPage([checkpoint_id], first, first + _MANIFESTS_AT_A_TIME)
            continue
        group.append(checkpoint_id)
        ranks += world_size
    if group:
        yield _ManifestPage(group, 0, _MANIFESTS_AT_A_TIME)


def named_chunks(database: Database, *conditions: ColumnElement[bool]) -> Iterator[NamedChunks]:
    """What the manifests of the checkpoints that fulfil the conditions name, page by page.

    Each page is a short transaction of its own. A manifest that exists from before the first page until after the last
    is among them; others may be.
    """
    place = ("", -1)
    query = (
        select(ManifestRow.checkpoint_id, ManifestRow.rank, ManifestRow.chunk_ids)
        .join(Checkpoint, Checkpoint.id == ManifestRow.checkpoint_id)
        .where(*conditions)
        .order_by(ManifestRow.checkpoint_id, ManifestRow.rank)
        .limit(_MANIFESTS_AT_A_TIME)
    )
    while True:
        with database.read() as session:
            rows = session.execute(query.where(tuple_(ManifestRow.checkpoint_id, ManifestRow.rank) > place)).all()
        for checkpoint_id, _, packed in rows:
            yield NamedChunks(checkpoint_id, unpack_ids(packed))
        if len(rows) < _MANIFESTS_AT_A_TIME:
            return
        place = (rows[-1][0], rows[-1][1])
