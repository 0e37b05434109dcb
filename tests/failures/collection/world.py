"""The world of the collection machine: a service's parts, jobs, actors under way, and what must be true of it all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from blake3 import blake3
from sqlalchemy import select

from shardkeep.protocol.messages import RetentionRules
from shardkeep_service.blob_store.errors import BlobExists
from shardkeep_service.checkpoints.chunk_ids import unpack_ids
from shardkeep_service.checkpoints.expiry import expire_checkpoints
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.transitions import (
    Seen,
    delete_checkpoint,
    pin_checkpoint,
    restore_checkpoint,
    unpin_checkpoint,
)
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.errors import Refusal
from shardkeep_service.garbage_collection.bucket_check import CollectionStopped
from shardkeep_service.garbage_collection.collector import steps
from shardkeep_service.retention.applying import apply_to_run
from shardkeep_service.retention.service import set_policy
from shardkeep_service.runs.models import Run
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.failures.collection.actors import (
    PRINCIPAL,
    Expected,
    Job,
    Service,
    careless_saving,
    contents,
    reading,
    recording,
    saving,
    taking_over,
)
from tests.failures.collection.database_copies import Copy, put_copy, take_copy
from tests.failures.collection.late_store import LateStore
from tests.unit.service.local_service import ShiftedDatabase

OPEN_LIMIT: Final = 1000.0
GRACE: Final = 500.0
SETTINGS: Final[dict[str, Any]] = {
    "lease_seconds": 1e9,
    "open_deadline_seconds": 1e9,
    "validation_lease_seconds": 1e9,
    "open_limit_seconds": OPEN_LIMIT,
    "claim_repeat_seconds": 300.0,
    "collection_grace_seconds": GRACE,
    "deleted_keep_seconds": 800.0,
}
"""Small times, so that an example lives through many of each. Ranks never lapse: only the limit ends a save."""
JUMPS: Final = (10.0, 200.0, 400.0, 900.0, 1500.0, 4000.0)


@dataclass(slots=True)
class World:
    """One example."""

    database: ShiftedDatabase
    directory: Path
    store: LateStore = field(default_factory=LateStore)
    jobs: list[Job] = field(default_factory=lambda: [Job("one"), Job("two")])
    actors: list[Iterator[object]] = field(default_factory=list)
    saved: dict[int, Expected] = field(default_factory=dict)
    """What the save of each step names: no two saves are of the same."""
    expected: dict[str, Expected] = field(default_factory=dict)
    """The same by checkpoint, once it is committed."""
    backup: Copy | None = None
    frozen: dict[str, bytes] | None = None
    """After an old backup was restored: the objects that what was committed meanwhile needs."""
    step: int = 0
    service: Service = field(init=False)

    def __post_init__(self) -> None:
        put_copy(self.database, {})
        self.database.ahead_micros = 0
        self.service = self._new_service()
        for job in self.jobs:
            self.service.begin(job, checkpoint=None, fresh=True)

    def _new_service(self) -> Service:
        settings = Settings(data_dir=self.directory, **SETTINGS)
        return Service(ServiceContext(self.database, self.store, settings))

    @property
    def context(self) -> ServiceContext:
        return self.service.context

    def actions(self) -> list[Callable[[int, int], None]]:
        """What may happen, the frequent more often."""
        beside_old_database = [
            *[self.go_on] * 5, *[self.meanwhile] * 6, *[self.collect] * 2, self.let_time_pass, self.let_time_pass,
            self.a_night, self.record, self.retain, self.expire, self.die, self.late_delete, self.delay_a_delete,
            self.finish_one,
        ]  # fmt: skip
        if self.frozen is not None:
            return beside_old_database  # what it calls present may be gone: nobody saves before a rebuild
        return [
            *beside_old_database, *[self.begin_save] * 3, self.careless, self.begin_attempt, self.take_over,
            self.read, self.read, self.delete, self.delete, self.restore, self.pin, self.unpin,
            self.take_backup, self.restore_backup,
        ]  # fmt: skip

    # --- what may happen ---------------------------------------------------------------------------------------------

    def go_on(self, index: int, count: int) -> None:
        """Some actor takes a few steps."""
        if self.actors:
            actor = self.actors[index % len(self.actors)]
            for _ in range(1 + count % 7):
                if not self._advance(actor):
                    return

    def finish_one(self, index: int, _number: int) -> None:
        """Some actor goes on to its end."""
        if self.actors:
            actor = self.actors[index % len(self.actors)]
            while self._advance(actor):
                pass

    def meanwhile(self, index: int, number: int) -> None:
        """Some actor takes steps up to anywhere, another one goes all its way, and then the first goes on."""
        if not self.actors:
            return
        first = self.actors[number % len(self.actors)]
        for _ in range(index % 40):
            if not self._advance(first):
                return
        others = [actor for actor in self.actors if actor is not first]
        if others:
            other = others[index % len(others)]
            while self._advance(other):
                pass
        if number % 2:
            while self._advance(first):
                pass

    def a_night(self, _index: int, _number: int) -> None:
        """Long enough for saves to be aborted and for whatever is dead to be condemned."""
        self.advance(4000.0)
        expire_checkpoints(self.context)
        self.actors.append(steps(self.context))
        while self._advance(self.actors[-1]):
            pass

    def begin_save(self, index: int, number: int) -> None:
        self._save(saving, index, number)

    def careless(self, index: int, number: int) -> None:
        """A save by a client that names chunks it never asked about."""
        self._save(careless_saving, index, number)

    def take_over(self, _index: int, _number: int) -> None:
        """Another process looks for validations whose process died."""
        self.actors.append(taking_over(self.service, self._committed))

    def collect(self, _index: int, _number: int) -> None:
        """Another pass begins: as after a lease was lost, there may be two."""
        if len(self.actors) < 8:
            self.actors.append(steps(self.context))

    def record(self, _index: int, _number: int) -> None:
        self.actors.append(recording(self.context))

    def read(self, index: int, _number: int) -> None:
        ids = sorted(self.expected)
        if ids and self.frozen is None:
            checkpoint_id = ids[index % len(ids)]
            self.actors.append(reading(self.service, checkpoint_id, self.expected[checkpoint_id]))

    def delete(self, index: int, _number: int) -> None:
        self._change(index, "committed", lambda one: delete_checkpoint(self.context, PRINCIPAL, one.id, _seen(one)))

    def restore(self, index: int, _number: int) -> None:
        self._change(index, "deleted", lambda one: restore_checkpoint(self.context, PRINCIPAL, one.id, _seen(one)))

    def pin(self, index: int, _number: int) -> None:
        self._change(
            index, "committed", lambda one: pin_checkpoint(self.context, PRINCIPAL, one.id, _seen(one), reason="")
        )

    def unpin(self, index: int, _number: int) -> None:
        self._change(index, "committed", lambda one: unpin_checkpoint(self.context, PRINCIPAL, one.id, _seen(one)))

    def retain(self, index: int, number: int) -> None:
        """A policy is set and applied."""
        job = self.jobs[index % len(self.jobs)]
        rules = RetentionRules(keep_last=1 + number % 2, off_line_seconds=100)
        set_policy(self.context, PRINCIPAL, "project", job.name, rules)
        with self.database.read() as session:
            run = session.scalars(select(Run).where(Run.name == job.name)).one()
            newest = _newest(session, run.id)
        apply_to_run(self.context, run.id, "worker")
        with self.database.read() as session:
            assert newest is None or session.get_one(Checkpoint, newest).state == "committed", "the newest was deleted"

    def expire(self, _index: int, _number: int) -> None:
        expire_checkpoints(self.context)

    def begin_attempt(self, index: int, number: int) -> None:
        """A job dies and its next attempt resumes, from the latest or from some checkpoint."""
        job = self.jobs[index % len(self.jobs)]
        ids = [one.id for one in self._checkpoints("committed")]
        chosen = ids[number % len(ids)] if ids and number % 3 == 0 else None
        self.service.begin(job, checkpoint=chosen, fresh=number % 5 == 4)

    def die(self, index: int, _number: int) -> None:
        """Some actor is killed where it is."""
        if self.actors:
            self.actors.pop(index % len(self.actors))

    def let_time_pass(self, index: int, _number: int) -> None:
        self.advance(JUMPS[index % len(JUMPS)])

    def late_delete(self, index: int, _number: int) -> None:
        self.store.arrive(index)

    def delay_a_delete(self, _index: int, _number: int) -> None:
        self.store.next_delete_is_late = True

    def take_backup(self, _index: int, _number: int) -> None:
        if self.frozen is None:
            self.backup = take_copy(self.database)

    def restore_backup(self, _index: int, number: int) -> None:
        """An old database comes back beside the newer bucket: everything restarts on it."""
        if self.backup is None or self.frozen is not None or number % 2:
            return
        needed = self._needed_by_recorded()
        self.actors.clear()
        put_copy(self.database, self.backup)
        with self.database.read() as session:
            known = {one.id: one.version for one in session.scalars(select(Checkpoint))}
        newer = {key: id_ for key, (id_, version) in needed.items() if known.get(id_, -1) < version}
        self.frozen = {key: self.store.content()[key] for key in newer}
        self.expected = {id_: kept for id_, kept in self.expected.items() if id_ in known}
        self.service = self._new_service()

    # --- what must be true -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """No byte is missing that anything alive needs."""
        content = self.store.content()
        for key, data in (self.frozen or {}).items():
            assert content.get(key) == data, f"{key} of a commit that the old database does not know is gone"
        if self.frozen is not None:
            return  # what the old database keeps may have been purged by the newer one
        with self.database.read() as session:
            kept = select(Checkpoint.id, Checkpoint.index_key).where(Checkpoint.state.in_(("committed", "deleted")))
            indexes = dict(session.execute(kept).all())
            manifests = select(ManifestRow.checkpoint_id, ManifestRow.object_key, ManifestRow.chunk_ids)
            rows = session.execute(manifests.where(ManifestRow.checkpoint_id.in_(indexes))).all()
            chunks = {
                id_: (state, key, digest)
                for id_, state, key, digest in session.execute(
                    select(Chunk.id, Chunk.state, Chunk.object_key, Chunk.digest)
                )
            }
        for checkpoint_id, index in indexes.items():
            assert index in content, f"the index of {checkpoint_id} is gone"
        for checkpoint_id, key, packed in rows:
            assert key in content, f"a manifest of {checkpoint_id} is gone"
            for chunk_id in unpack_ids(packed).tolist():
                assert chunk_id in chunks, f"a chunk of {checkpoint_id} has no row"
                state, chunk_key, digest = chunks[chunk_id]
                assert state == "stored", f"a chunk of {checkpoint_id} is {state}"
                assert chunk_key in content, f"a chunk of {checkpoint_id} has no object"
                assert blake3(content[chunk_key]).hexdigest() == digest

    def check_ends_clean(self) -> None:
        """Every dead byte goes in the end."""
        self.actors.clear()
        for _ in range(5):
            self.advance(4000.0)
            expire_checkpoints(self.context)
            while self.store.late:
                self.store.arrive(0)
            self.actors = [recording(self.context), steps(self.context)]
            if self.frozen is None:
                self.actors.insert(0, taking_over(self.service, self._committed))
            self._to_the_end(may_stop=self.frozen is not None)
            self.check()
        if self.frozen is not None:
            return
        content = self.store.content()
        with self.database.read() as session:
            ids = set(session.scalars(select(Checkpoint.id).where(Checkpoint.state.in_(("committed", "deleted")))))
            rows = session.scalars(select(ManifestRow)).all()
            assert {row.checkpoint_id for row in rows} <= ids
            named = {chunk_id for row in rows for chunk_id in unpack_ids(row.chunk_ids).tolist()}
            chunks = session.scalars(select(Chunk)).all()
            assert {chunk.id for chunk in chunks} == named, "rows of dead chunks are left"
            alive = {chunk.object_key for chunk in chunks} | {row.object_key for row in rows}
            alive |= set(session.scalars(select(Checkpoint.index_key).where(Checkpoint.id.in_(ids))))
        kinds = ("/chunks/", "/manifests/", "/indexes/")
        left = {key for key in content if any(kind in key for kind in kinds)}
        assert left == alive, f"dead objects are left: {sorted(left - alive)[:5]}"
        commits = {key.split("/")[2].split(".")[0] for key in content if "/commits/" in key}
        assert commits == ids, "records of purged checkpoints are left, or records are missing"

    # --- parts -------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.database.ahead_micros += round(seconds * 1e6)

    def _to_the_end(self, *, may_stop: bool) -> None:
        for actor in self.actors:
            try:
                for _ in actor:
                    pass
            except CollectionStopped:
                assert may_stop, "collection stopped beside a database that knows all"

    def _advance(self, actor: Iterator[object]) -> bool:
        try:
            next(actor)
        except StopIteration:
            self.actors.remove(actor)
        except CollectionStopped:
            assert self.frozen is not None, "collection stopped beside a database that knows all"
            self.actors.remove(actor)
        except (Refusal, BlobExists):
            self.actors.remove(actor)
        else:
            return True
        return False

    def _save(self, how: Callable[..., Iterator[None]], index: int, number: int) -> None:
        if len(self.actors) >= 8:
            return
        job = self.jobs[index % len(self.jobs)]
        numbers = (number % 5, index % 5)
        self.step += 1
        packed = contents(numbers, self.step)
        self.saved[self.step] = Expected({ref.digest: data for one in packed for ref, data in one.chunks})
        self.actors.append(how(self.service, job, numbers, self.step, self._committed))
        self.go_on(len(self.actors) - 1, number)

    def _committed(self, checkpoint_id: str) -> None:
        with self.database.read() as session:
            step = session.get_one(Checkpoint, checkpoint_id).step
        self.expected[checkpoint_id] = self.saved[step]

    def _checkpoints(self, state: str) -> list[Checkpoint]:
        with self.database.read() as session:
            query = select(Checkpoint).where(Checkpoint.state == state).order_by(Checkpoint.run_id, Checkpoint.number)
            return list(session.scalars(query))

    def _change(self, index: int, state: str, change: Callable[[Checkpoint], object]) -> None:
        found = self._checkpoints(state)
        if found:
            try:
                change(found[index % len(found)])
            except Refusal:
                return

    def _needed_by_recorded(self) -> dict[str, tuple[str, int]]:
        """Objects that committed checkpoints with a record need: by key, whose and at which version recorded."""
        versions: dict[str, int] = {}
        for key in self.store.content():
            if "/commits/" in key:
                id_, version, _ = key.split("/")[2].split(".")
                versions[id_] = max(versions.get(id_, 0), int(version))
        needed: dict[str, tuple[str, int]] = {}
        with self.database.read() as session:
            for row in session.scalars(select(ManifestRow)):
                checkpoint = session.get_one(Checkpoint, row.checkpoint_id)
                if checkpoint.state != "committed" or checkpoint.id not in versions:
                    continue
                chunks = [session.get_one(Chunk, one).object_key for one in unpack_ids(row.chunk_ids).tolist()]
                for key in (row.object_key, checkpoint.index_key or "", *chunks):
                    best = max(versions[checkpoint.id], needed.get(key, ("", -1))[1])
                    needed[key] = (checkpoint.id, best)
        return needed


def _seen(checkpoint: Checkpoint) -> Seen:
    return Seen(checkpoint.version)


def _newest(session: object, run_id: str) -> str | None:
    from sqlalchemy.orm import Session

    assert isinstance(session, Session)
    query = select(Checkpoint.id).where(Checkpoint.run_id == run_id, Checkpoint.state == "committed")
    return session.scalars(query.order_by(Checkpoint.sequence.desc()).limit(1)).first()
