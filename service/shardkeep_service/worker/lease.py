"""The worker's lease: of many workers one runs a task, by database time.

A lease is a promise of order, not of safety. A worker that stood still may come back after its lease lapsed and another
took it: it learns so at its next step, and every step of every task is conditional in the database for that case.
"""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, CursorResult, or_, true, update

from shardkeep_service.database.database import Database
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.moments import micros
from shardkeep_service.worker.models import Lease

_OWNER_CHARACTERS: Final = 120


def new_owner() -> str:
    """A name for one worker process: where it runs, and what makes it unlike any other, restarted ones included."""
    return f"{secrets.token_hex(8)} {os.getpid()}@{socket.gethostname()}"[:_OWNER_CHARACTERS]


@dataclass(frozen=True, slots=True)
class WorkerLease:
    """The lease of the task `name` as one worker sees it. Each method is one transaction with one conditional write."""

    database: Database
    name: str
    owner: str
    seconds: float

    def take(self, *, also_early: bool = False) -> bool:
        """Whether the task is due (or `also_early`) and now this worker's: nobody had it, or a lease that lapsed."""
        with self.database.write() as session:
            now = self.database.now(session)
            insert_if_absent(session, Lease, {"name": self.name, "owner": None, "until": 0, "due_at": 0})
            free = or_(Lease.owner.is_(None), Lease.until < now)
            due = true() if also_early else Lease.due_at <= now
            return self._write(session, free, due, owner=self.owner, until=now + micros(self.seconds))

    def renew(self) -> bool:
        """Whether it is still this worker's, for `seconds` from now on. A lapsed one that nobody took is renewed."""
        with self.database.write() as session:
            until = self.database.now(session) + micros(self.seconds)
            return self._write(session, Lease.owner == self.owner, until=until)

    def end(self, *, due_after_seconds: float) -> None:
        """Gives the lease back; nobody runs the task before that time. Nothing where another holds it."""
        with self.database.write() as session:
            due_at = self.database.now(session) + micros(due_after_seconds)
            self._write(session, Lease.owner == self.owner, owner=None, until=0, due_at=due_at)

    def _write(self, session: Any, *conditions: ColumnElement[bool], **values: Any) -> bool:
        statement = update(Lease).where(Lease.name == self.name, *conditions).values(**values)
        result = session.execute(statement, execution_options={"synchronize_session": False})
        return cast("CursorResult[Any]", result).rowcount == 1
