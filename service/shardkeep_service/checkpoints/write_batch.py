"""Joining many small writes that arrive together into one transaction, so that 1,024 ranks cost tens of commits.

The first thread in becomes the leader: it takes everything that queued up while the leader before it was committing,
and
writes it in one transaction. Nobody waits for a timer; a lone request is written at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.errors import Refusal

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

BATCH_LIMIT: Final = 512


class _Entry(Generic[Item, Outcome]):
    __slots__ = ("item", "outcome")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.outcome: Outcome | Refusal | None = None


class WriteBatch(Generic[Item, Outcome]):
    """`apply` decides about each item and writes them all; it gives one outcome or Refusal per item, in order.

    It must not fail because of one item: what is wrong with an item is its Refusal. When the transaction itself fails,
    the
    leader tries its own item alone, so that nobody fails because of somebody else's.
    """

    def __init__(
        self,
        database: Database,
        apply: Callable[[Session, Sequence[Item]], Sequence[Outcome | Refusal]],
        *,
        limit: int = BATCH_LIMIT,
    ) -> None:
        self._database = database
        self._limit = limit
        self._apply = apply
        self._queue: list[_Entry[Item, Outcome]] = []
        self._queue_lock = threading.Lock()
        self._turn = threading.Lock()

    def submit(self, item: Item) -> Outcome:
        """The outcome, once it is committed; raises the item's Refusal."""
        entry: _Entry[Item, Outcome] = _Entry(item)
        with self._queue_lock:
            self._queue.append(entry)
        with self._turn:
            if entry.outcome is None:
                self._lead(entry)
        outcome = entry.outcome
        assert outcome is not None  # the leader gives every entry one, or raises
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    def _lead(self, own: _Entry[Item, Outcome]) -> None:
        with self._queue_lock:
            self._queue.remove(own)
            others, self._queue[:] = self._queue[: self._limit - 1], self._queue[self._limit - 1 :]
        try:
            self._write([own, *others])
        except (DatabaseFailed, SQLAlchemyError):
            with self._queue_lock:
                self._queue[:0] = others
            if not others:
                raise
            self._write([own])

    def _write(self, entries: Sequence[_Entry[Item, Outcome]]) -> None:
        with self._database.write() as session:
            outcomes = self._apply(session, [entry.item for entry in entries])
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.outcome = outcome
