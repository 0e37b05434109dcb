"""Running validations in the background of this process, and taking over those whose process died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.commit import Committer, Ending
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.checkpoints.validation import validate
from shardkeep_service.moments import micros
from shardkeep_service.service_context import ServiceContext

log = structlog.get_logger("shardkeep.validator")

_RENEWALS_PER_LEASE: Final = 3


class LeaseLost(Exception):
    """Another process validates this checkpoint now, or it was aborted."""


class Validator:
    """One per process. Each checkpoint is validated by one thread at a time; a few run side by side."""

    def __init__(self, context: ServiceContext, indexes: IndexCache, *, owner: str, threads: int = 2) -> None:
        self._context = context
        self._indexes = indexes
        self._owner = owner
        self._committer = Committer(context, owner)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="validator")
        self._idle = threading.Condition()
        self._running: set[str] = set()
        self.before_commit: Callable[[str], None] = lambda _: None
        """Called with the checkpoint id between writing the index and the commit transaction; tests block here."""

    def submit(self, checkpoint_id: str) -> None:
        """Validates, in the background, a checkpoint that this owner holds the lease of. Idempotent."""
        with self._idle:
            if checkpoint_id in self._running:
                return
            self._running.add(checkpoint_id)
        self._pool.submit(self._run, checkpoint_id)

    def take_over(self, *, also_live: bool = False) -> list[str]:
        """Takes the validations whose lease lapsed (with `also_live` all: at the start of the only process there
        is).
        """
        with self._context.database.write() as session:
            taken = self._take(session, also_live=also_live)
        for checkpoint_id in taken:
            self.submit(checkpoint_id)
        return taken

    def wait_until_idle(self) -> None:
        """Returns when nothing that was submitted so far is running."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running)

    def close(self) -> None:
        """Lets running validations end and drops the queued ones; another process takes those over."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _take(self, session: Session, *, also_live: bool) -> list[str]:
        now = self._context.database.now(session)
        query = select(Checkpoint).where(Checkpoint.state == CheckpointState.VALIDATING.value)
        query = query.with_for_update(key_share=True, skip_locked=True)  # what is locked is being ended by its owner
        if not also_live:
            query = query.where(Checkpoint.validation_until < now)
        found = session.scalars(query.order_by(Checkpoint.id)).all()
        for checkpoint in found:
            checkpoint.validation_owner = self._owner
            checkpoint.validation_until = now + self._lease_micros
        return [checkpoint.id for checkpoint in found]

    def _run(self, checkpoint_id: str) -> None:
        started = time.monotonic()
        try:
            ending = self._validate(checkpoint_id)
            seconds = time.monotonic() - started
            log.info("validated", checkpoint=checkpoint_id, ending=ending, seconds=round(seconds, 3))
            self._context.metrics.validation_seconds.labels(ending.value).observe(seconds)
        except Exception:  # the edge of this thread: the lease lapses and the checkpoint is taken over
            log.exception("validation_failed", checkpoint=checkpoint_id)
        finally:
            with self._idle:
                self._running.discard(checkpoint_id)
                self._idle.notify_all()

    def _validate(self, checkpoint_id: str) -> Ending:
        try:
            outcome = validate(self._context, self._indexes, checkpoint_id, keep_alive=self._keep_alive(checkpoint_id))
        except LeaseLost:
            return Ending.LOST
        self.before_commit(checkpoint_id)
        return self._committer.end(checkpoint_id, outcome)

    def _keep_alive(self, checkpoint_id: str) -> Callable[[], None]:
        """Renews the lease when a third of it has passed since the last time."""
        every_seconds = self._context.settings.validation_lease_seconds / _RENEWALS_PER_LEASE
        last = time.monotonic()

        def keep_alive() -> None:
            nonlocal last
            if time.monotonic() - last < every_seconds:
                return
            self._renew(checkpoint_id)
            last = time.monotonic()

        return keep_alive

    def _renew(self, checkpoint_id: str) -> None:
        with self._context.database.write() as session:
            until = self._context.database.now(session) + self._lease_micros
            renewed = session.scalars(
                update(Checkpoint)
                .where(
                    Checkpoint.id == checkpoint_id,
                    Checkpoint.state == CheckpointState.VALIDATING.value,
                    Checkpoint.validation_owner == self._owner,
                )
                .values(validation_until=until)
                .returning(Checkpoint.id)
            ).all()
        if not renewed:
            raise LeaseLost(checkpoint_id)

    @property
    def _lease_micros(self) -> int:
        return micros(self._context.settings.validation_lease_seconds)
