"""A catalogue of many runs and checkpoints, written by bulk inserts: for lists, pages and their speed, not for bytes.

No object is stored: a service that shows it must not read any back, so give it `housekeeping_seconds`,
`collection_seconds` and `scrub_bytes_per_second=0` by which nothing of that happens. The same arguments give the same
ids, names and numbers; times count back from now.
"""

from __future__ import annotations

import random
import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Table, insert, text
from sqlalchemy.orm import Session

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.access.models import AuditEntry, ProjectUsage, Token, TokenProject
from shardkeep_service.access.secrets import token_hash
from shardkeep_service.checkpoints.models import Checkpoint, CheckpointTag, ManifestRow, RankSession
from shardkeep_service.chunks.models import Chunk, ChunkState, Verification
from shardkeep_service.database.database import Database
from shardkeep_service.integrity.models import Damage, Finding, FindingCheckpoint, ObjectKind
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.models import Attempt, Run
from tests.servers.migrated_databases import put_migrated_sqlite

SECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND
LEASE_SECONDS: Final = 120
"""As the service's own default."""
_WORDS: Final = ("llama", "mistral", "vision", "speech", "protein", "climate", "router", "reward")
_STAGES: Final = ("pretrain", "sft", "dpo", "ablation", "probe")
_COMMITTED = CheckpointState.COMMITTED.value
_ABORTED = CheckpointState.ABORTED.value
_DELETED = CheckpointState.DELETED.value
_PURGED = CheckpointState.PURGED.value
_OPEN = CheckpointState.OPEN.value
LONG_ATTEMPTS: Final = 500
"""Of the long run: it was restarted time and again."""
_ATTEMPTS_LIMIT: Final = 1_000
_IN_A_STATEMENT: Final = 5_000
_TIMED: Final = 200
"""The last saves of the long run, of which every rank's time is known."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What was written. `long_run` has a tenth of all checkpoints, many attempts, `ranks` ranks, and the times
    of its last saves.
    """

    projects: list[str]
    runs: int
    checkpoints: int
    long_project: str
    long_run: str
    saving: list[str]
    """Ids of the open checkpoints."""


@dataclass(slots=True)
class _Rows:
    """Rows by table, in the order in which they refer to each other."""

    of: dict[Table, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, model: type[Any], **values: Any) -> None:
        self.of.setdefault(model.__table__, []).append(values)


def fill(
    database: str | Path,
    *,
    runs: int = 10_000,
    checkpoints: int = 100_000,
    projects: int = 20,
    ranks: int = 64,
    audit_entries: int = 20_000,
    tokens: int = 1_000,
) -> Catalogue:
    """Fills a database with the present schema: the URL of an empty one, or the path of an SQLite file, made if absent.

    100,000 checkpoints take some seconds on SQLite and about ten times as long on PostgreSQL.
    """
    if isinstance(database, Path):
        put_migrated_sqlite(database)
        database = f"sqlite:///{database}"
    opened = _HastyDatabase(database)
    try:
        with opened.write() as session:
            filler = _Filler(opened.now(session), random.Random(1), ranks)
            catalogue = filler.plan(runs=runs, checkpoints=checkpoints, projects=projects)
            filler.add_access(tokens=tokens, audit_entries=audit_entries)
            _write(session, filler.rows)
        if not opened.is_sqlite:
            with opened.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("VACUUM ANALYZE"))  # as the server itself would before long
    finally:
        opened.close()
    return catalogue


class _HastyDatabase(Database):
    """Writes an SQLite file once, at its end: what is half written is of no use anyway."""

    def _set_pragmas(self, connection: sqlite3.Connection, record: object) -> None:
        super()._set_pragmas(connection, record)
        for pragma in ("journal_mode=MEMORY", "synchronous=OFF", "cache_size=-1000000"):
            connection.execute(f"PRAGMA {pragma}")


class _Filler:
    """Makes up rows. Every sixth run is new, every hundredth is deleted, every 500th is being saved to."""

    def __init__(self, now: int, chance: random.Random, ranks: int) -> None:
        self.rows = _Rows()
        self._now, self._chance, self._ranks = now, chance, ranks
        self._project_ids: list[str] = []
        self._saving: list[str] = []
        self._checkpoints = 0
        self._first_timed = 0

    def plan(self, *, runs: int, checkpoints: int, projects: int) -> Catalogue:
        names = [f"{_WORDS[number % len(_WORDS)]}-{number:03d}" for number in range(projects)]
        for number, name in enumerate(names):
            self._add_project(number, name)
        for number, count in enumerate(_shares(runs, checkpoints)):
            if number == 0:
                self._first_timed = count - _TIMED
            self._add_run(number, count)
        return Catalogue(
            projects=names, runs=runs, checkpoints=self._checkpoints, long_project=names[0], long_run=_run_name(0),
            saving=self._saving,
        )  # fmt: skip

    def add_access(self, *, tokens: int, audit_entries: int) -> None:
        """Tokens, of which every third is bound to a project, and entries of the audit log."""
        for number in range(tokens):
            bound = self._project_ids[number % len(self._project_ids)] if number % 3 == 0 else None
            token_id = _id("tok", number)
            self.rows.add(
                Token, id=token_id, name=f"token {number}", hash=token_hash(token_id), prefix="sk_filled", scope="read",
                project_id=bound, created_at=self._ago(90 * DAY),
            )  # fmt: skip
            if bound is not None:
                self.rows.add(TokenProject, token_id=token_id, project_id=bound)
        actions = ("checkpoint.commit", "checkpoint.delete", "run.create", "token.create")
        for number in range(audit_entries):
            self.rows.add(
                AuditEntry, at=self._now - (audit_entries - number) * 60 * SECOND, actor=_id("tok", number % tokens),
                actor_name=f"token {number % tokens}", action=actions[number % len(actions)],
                target=_id("ckp", number), project_id=self._project_ids[number % len(self._project_ids)],
                detail={"step": number},
            )  # fmt: skip

    def _add_project(self, number: int, name: str) -> None:
        project_id = _id("prj", number)
        self._project_ids.append(project_id)
        self.rows.add(Project, id=project_id, name=name, created_at=self._now - 100 * DAY)
        self.rows.add(ProjectUsage, project_id=project_id, slot=0, stored_bytes=(number + 1) << 40)
        for index in range(100):
            self._add_chunk(project_id, number * 100 + index)

    def _add_chunk(self, project_id: str, number: int) -> None:
        digest = blake2b(str(number).encode(), digest_size=32).hexdigest()
        damaged = number % 50 == 0
        verification = Verification.DECLARED if number % 10 == 1 else Verification.VERIFIED
        origin = _id("ckp", number)
        self.rows.add(
            Chunk, id=number + 1, project_id=project_id, digest=digest, size_bytes=32 << 20, crc64="0" * 16,
            object_key=f"{project_id}/{digest}.1", verification=verification.value, origin_run_id=_id("run", 0),
            state=(ChunkState.QUARANTINED if damaged else ChunkState.STORED).value, origin_checkpoint_id=origin,
            claimed_at=self._now, stored_at=self._now, verified_at=self._now, uploads=1,
        )  # fmt: skip
        if damaged:
            finding_id = number // 50 + 1
            self.rows.add(FindingCheckpoint, checkpoint_id=origin, finding_id=finding_id)
            self.rows.add(
                Finding, id=finding_id, project_id=project_id, checkpoint_id=origin, kind=ObjectKind.CHUNK.value,
                damage=Damage.DAMAGED.value, object_key=f"{project_id}/{digest}.1", digest=digest,
                detail="its bytes have another digest", harmed=[origin], found_at=self._now - number * SECOND,
            )  # fmt: skip

    def _add_run(self, number: int, count: int) -> None:
        run_id = _id("run", number)
        name, is_deleted = _run_name(number), number % 100 == 99
        created_at = self._now - 59 * DAY if number == 0 else self._ago(60 * DAY)
        attempts = min(count, LONG_ATTEMPTS if number == 0 else 1 + number % 3)
        saves_now = number % 500 == 0
        self.rows.add(
            Run, id=run_id, project_id=self._project_ids[number % len(self._project_ids)], created_at=created_at,
            name=f"~{run_id}" if is_deleted else name, deleted_name=name if is_deleted else None,
            deleted_at=self._now if is_deleted else None, attempts=attempts, opened=count, sequence=count,
            version=2 if is_deleted else 1,
            current_attempt_id=_id("att", number * _ATTEMPTS_LIMIT + attempts) if attempts else None,
        )  # fmt: skip
        first_of_attempt = [1 + count * attempt // attempts for attempt in range(attempts)]
        begins = set(first_of_attempt)
        for attempt, first in enumerate(first_of_attempt, start=1):
            resumed = "fresh" if attempt == 1 else _id("ckp", self._checkpoints + first - 1)
            self.rows.add(
                Attempt, id=_id("att", number * _ATTEMPTS_LIMIT + attempt), run_id=run_id, number=attempt,
                launch_id=_hex(f"launch {number} {attempt}"), ordinal=0, world_size=self._world_size(number),
                labels={"slurm_job_id": str(number)}, created_at=created_at + attempt * SECOND, decision=resumed,
                decided_at=created_at + attempt * SECOND, passed_over=[],
            )  # fmt: skip
        every = (self._now - created_at) // (count + 1)
        for index in range(1, count + 1):
            attempt = bisect_right(first_of_attempt, index)
            is_last = index == count
            if is_deleted or (is_last and saves_now):
                state = _DELETED if is_deleted else _OPEN
            else:
                is_named = is_last or index + 1 in begins or (saves_now and index == count - 1)
                state = _COMMITTED if is_named else _state_of(index)
            opened_at = self._now - 100 * SECOND if state == _OPEN else created_at + index * every
            self._add_checkpoint(number, attempt, index, state, opened_at=opened_at)

    def _add_checkpoint(self, run: int, attempt: int, index: int, state: str, *, opened_at: int) -> None:
        self._checkpoints += 1
        checkpoint_id = _id("ckp", self._checkpoints)
        was_committed = state in (_COMMITTED, _DELETED, _PURGED)
        seconds = 5 + self._chance.expovariate(1 / 20)
        raw_bytes = self._chance.randrange(1 << 30, 1 << 38) if was_committed else None
        world_size = self._world_size(run)
        abort = {"code": "session_lapsed", "reason": "rank 1 sent nothing", "rank": 1, "ranks": [1], "tensors": []}
        self.rows.add(
            Checkpoint, id=checkpoint_id, project_id=self._project_ids[run % len(self._project_ids)],
            run_id=_id("run", run), attempt_id=_id("att", run * _ATTEMPTS_LIMIT + attempt), number=index, save=index,
            step=index * 100, world_size=world_size, state=state, opened_at=opened_at,
            deadline=opened_at + DAY, arrived=_arrived(state, world_size),
            parent_id=_id("ckp", self._checkpoints - 1) if state == _OPEN else None,
            sequence=index if was_committed else None,
            committed_at=opened_at + round(seconds * SECOND) if was_committed else None,
            index_key="none" if was_committed else None, index_digest="0" * 64 if was_committed else None,
            raw_bytes=raw_bytes, stored_bytes=raw_bytes and raw_bytes * 3 // 4, new_bytes=raw_bytes and raw_bytes // 4,
            tensors=300 if was_committed else None, metrics={"loss": round(4 / (1 + index / 50), 4)}, environment={},
            report=None, abort=abort if state == _ABORTED else None, pinned=state == _COMMITTED and index % 97 == 1,
            quarantined=state == _COMMITTED and self._checkpoints % 5_000 == 1,
            deleted_at=self._now if state in (_DELETED, _PURGED) else None,
            purged_at=self._now if state == _PURGED else None, version=3,
        )  # fmt: skip
        if state == _COMMITTED and index % 50 == 1:
            self.rows.add(
                CheckpointTag, checkpoint_id=checkpoint_id, tag="best", run_id=_id("run", run), set_at=opened_at
            )
        if state == _OPEN:
            self._saving.append(checkpoint_id)
            self._add_sessions(checkpoint_id, world_size, opened_at)
        elif run == 0 and state in (_COMMITTED, _DELETED) and index > self._first_timed:
            self._add_manifests(checkpoint_id, world_size, opened_at, seconds)

    def _add_sessions(self, checkpoint_id: str, world_size: int, opened_at: int) -> None:
        for rank in range(world_size - 1):  # the last one is missing
            idle_seconds = rank % 60
            self.rows.add(
                RankSession, checkpoint_id=checkpoint_id, rank=rank, opened_at=opened_at,
                lease_until=self._now + (LEASE_SECONDS - idle_seconds) * SECOND, offered_bytes=(rank + 1) << 30,
                present_bytes=rank << 29,
            )  # fmt: skip
        for rank in range(_arrived(_OPEN, world_size)):
            self._add_manifest(checkpoint_id, rank, opened_at + SECOND)

    def _add_manifests(self, checkpoint_id: str, world_size: int, opened_at: int, seconds: float) -> None:
        """Times of all ranks; rank 3 is a straggler."""
        for rank in range(world_size):
            part = 1.0 if rank == 3 else self._chance.uniform(0.3, 0.5)
            self._add_manifest(checkpoint_id, rank, opened_at + round(seconds * part * SECOND))

    def _add_manifest(self, checkpoint_id: str, rank: int, arrived_at: int) -> None:
        self.rows.add(
            ManifestRow, checkpoint_id=checkpoint_id, rank=rank, content_digest="0" * 64, body_digest="0" * 64,
            object_key="none", size_bytes=60_000, chunk_ids=b"", arrived_at=arrived_at,
        )  # fmt: skip

    def _world_size(self, run: int) -> int:
        return self._ranks if run % 500 == 0 else 1 << run % 6

    def _ago(self, most: int) -> int:
        return self._now - self._chance.randrange(SECOND, most)


def _arrived(state: str, world_size: int) -> int:
    """Manifests that a checkpoint had: of an open one half have arrived."""
    if state == _OPEN:
        return world_size // 2
    return world_size if state in (_COMMITTED, _DELETED, _PURGED) else 0


def _state_of(index: int) -> str:
    if index % 10 == 7:
        return _ABORTED if index % 20 == 7 else _PURGED
    return _DELETED if index % 10 == 4 else _COMMITTED


def _shares(runs: int, checkpoints: int) -> Iterator[int]:
    """The checkpoints of each run: the first has a tenth, every sixth none, the others about alike; at least one."""
    yield checkpoints // 10
    with_some = sum(number % 6 != 5 for number in range(1, runs))
    left = checkpoints - checkpoints // 10
    for number in range(1, runs):
        if number % 6 == 5:
            yield 0
            continue
        share = max(1, left // with_some)
        yield share
        left -= share
        with_some -= 1


def _write(session: Session, rows: _Rows) -> None:
    """Referred-to tables first; of a table, rows with the same columns in one statement."""
    for table in Project.metadata.sorted_tables:
        found = rows.of.get(table, [])
        for start in range(0, len(found), _IN_A_STATEMENT):
            _insert(session, table, found[start : start + _IN_A_STATEMENT])


def _insert(session: Session, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    session.connection().execute(insert(table), list(rows))


def _run_name(number: int) -> str:
    return f"{_WORDS[number % 7]}-{_STAGES[number % len(_STAGES)]}-{number:05d}"


def _id(prefix: str, number: int) -> str:
    return f"{prefix}_{_hex(f'{prefix} {number}')}"


def _hex(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
