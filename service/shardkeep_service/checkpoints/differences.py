"""The difference of two committed checkpoints, of whatever runs: totals, and the tensors page by page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from shardkeep.format.dtypes import dtype_coded
from shardkeep.format.index_difference import Change, IndexDifference, compare_indexes
from shardkeep.format.tensor_table import TensorTable
from shardkeep.protocol.messages import CheckpointSummary, DifferenceAnswer, TensorDifference
from shardkeep_service.access.principal import Principal
from shardkeep_service.checkpoints.bounded_cache import BoundedCache
from shardkeep_service.checkpoints.index_cache import NAME_BYTES, IndexCache, column_bytes
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.reading import find_readable, is_found, stored_index
from shardkeep_service.checkpoints.repository import load_places, places
from shardkeep_service.checkpoints.turns import Turns
from shardkeep_service.checkpoints.views import summaries
from shardkeep_service.cursors import bounded_limit, decode_cursor, encode_cursor
from shardkeep_service.service_context import ServiceContext

_LIST: Final = "differences"
_KEPT_BYTES: Final = 256 << 20

DifferenceCache = BoundedCache[tuple[str, str], IndexDifference]
"""By the object keys of both indexes, which never change: so the pages of a difference are not computed one by one."""


def make_difference_cache() -> DifferenceCache:
    """An empty one."""
    return DifferenceCache(memory_bytes, limit_bytes=_KEPT_BYTES)


def memory_bytes(difference: IndexDifference) -> int:
    """About what it takes in memory: its columns, and the tables of tensors that it keeps alive."""
    names = len(difference.tensors.names) + len(difference.other_tensors.names)
    return column_bytes(difference) + NAME_BYTES * names


@dataclass(frozen=True, slots=True)
class DifferenceFilter:
    """What the list is narrowed to; the totals are of everything."""

    change: Change | None = None
    search: str = ""


@dataclass(frozen=True, slots=True)
class _Side:
    checkpoint_id: str
    index_key: str
    summary: CheckpointSummary


@dataclass(frozen=True, slots=True)
class Comparer:
    """Compares checkpoints; one per request, over what the process keeps."""

    context: ServiceContext
    indexes: IndexCache
    differences: DifferenceCache
    turns: Turns

    def list_differences(
        self,
        principal: Principal,
        checkpoint_id: str,
        other_id: str,
        wanted: DifferenceFilter,
        *,
        limit: int,
        cursor: str | None,
    ) -> DifferenceAnswer:
        """What the checkpoint has and the other one has not, or has otherwise; by name."""
        size = bounded_limit(limit)
        filters = {"checkpoint": checkpoint_id, "other": other_id, "change": wanted.change, "search": wanted.search}
        position = decode_cursor(cursor, _LIST, filters, (str,))
        mine, theirs = self._sides(principal, checkpoint_id, other_id)
        found = self._difference(mine, theirs)
        rows = list(islice(_rows(found, wanted, after=position[0] if position else None), size + 1))
        following = encode_cursor(_LIST, filters, (found.names[rows[size - 1]],)) if len(rows) > size else None
        return DifferenceAnswer(
            checkpoint=mine.summary,
            other=theirs.summary,
            added=found.count(Change.ADDED),
            removed=found.count(Change.REMOVED),
            changed=found.count(Change.CHANGED),
            reshaped=found.count(Change.RESHAPED),
            recut=found.count(Change.RECUT),
            same=found.same,
            same_bytes=found.same_bytes,
            changed_bytes=int(found.changed_bytes[found.changes != Change.REMOVED].sum()),
            items=[_tensor_difference(found, row) for row in rows[:size]],
            next_cursor=following,
        )

    def _sides(self, principal: Principal, *checkpoint_ids: str) -> tuple[_Side, _Side]:
        with self.context.database.read() as session:
            for checkpoint_id in checkpoint_ids:
                find_readable(session, principal, checkpoint_id)
            found = load_places(session, places().where(Checkpoint.id.in_(checkpoint_ids)))
            shown = {summary.id: summary for summary in summaries(session, found)}
            keys = {place.checkpoint.id: place.checkpoint.index_key or "" for place in found}
        mine, theirs = (_Side(id_, keys[id_], shown[id_]) for id_ in checkpoint_ids)
        return mine, theirs

    def _difference(self, mine: _Side, theirs: _Side) -> IndexDifference:
        key = (mine.index_key, theirs.index_key)
        held = self.differences.held(key)
        if held is not None:
            return held
        with self.turns.turn():
            return self.differences.get(key, lambda: self._compare(mine, theirs))

    def _compare(self, mine: _Side, theirs: _Side) -> IndexDifference:
        index, other = (
            stored_index(self.context, self.indexes, side.checkpoint_id, side.index_key) for side in (mine, theirs)
        )
        return compare_indexes(index, other)


def _rows(found: IndexDifference, wanted: DifferenceFilter, *, after: str | None) -> Iterator[int]:
    start, search = 0 if after is None else bisect_right(found.names, after), wanted.search.casefold()
    for row in range(start, len(found.names)):
        if wanted.change is not None and found.changes[row] != wanted.change:
            continue
        if is_found(found.names[row], search):
            yield row


def _tensor_difference(found: IndexDifference, row: int) -> TensorDifference:
    change, mine, theirs = Change(int(found.changes[row])), int(found.rows[row]), int(found.other_rows[row])
    table, at = (found.other_tensors, theirs) if change is Change.REMOVED else (found.tensors, mine)
    is_reshaped = change is Change.RESHAPED
    return TensorDifference(
        name=found.names[row],
        change=change.name.lower(),
        dtype=_dtype(table, at),
        shape=list(table.shapes.shape(at)),
        other_dtype=_dtype(found.other_tensors, theirs) if is_reshaped else None,
        other_shape=list(found.other_tensors.shapes.shape(theirs)) if is_reshaped else None,
        raw_bytes=int(table.shapes.volumes[at] * table.item_bytes[at]),
        changed_bytes=int(found.changed_bytes[row]),
    )


def _dtype(table: TensorTable, row: int) -> str:
    return dtype_coded(int(table.dtype_codes[row])).name
