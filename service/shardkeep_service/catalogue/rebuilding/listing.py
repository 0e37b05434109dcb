"""What a bucket holds: one listing, kept in a temporary database on disk, so that memory stays bounded."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from shardkeep_service.blob_store.blob_store import BlobInfo, BlobStore
from shardkeep_service.catalogue import record_keys as keys

_SCHEMA: Final = """
CREATE TABLE chunks (project TEXT, digest TEXT, key TEXT, size INTEGER, upload INTEGER, checkpoint TEXT);
CREATE TABLE records (project TEXT, kind TEXT, subject TEXT, version INTEGER, key TEXT, size INTEGER);
CREATE TABLE manifests (project TEXT, checkpoint TEXT, rank INTEGER, key TEXT, size INTEGER);
CREATE TABLE others (key TEXT PRIMARY KEY, size INTEGER) WITHOUT ROWID;
"""
_INDEXES: Final = """
CREATE INDEX chunks_digest ON chunks (project, digest);
CREATE INDEX chunks_key ON chunks (key);
CREATE INDEX records_subject ON records (project, kind, subject, version);
CREATE INDEX manifests_checkpoint ON manifests (checkpoint);
"""
_INSERTED_AT_ONCE: Final = 5_000
_LOOKED_UP_AT_ONCE: Final = 500
PROJECT: Final = "project"

Progress = Callable[[int], None]
"""Called now and then with the number of objects listed so far."""


@dataclass(frozen=True, slots=True)
class ListedChunk:
    """One chunk object."""

    digest: str
    key: str
    size_bytes: int
    upload: int
    checkpoint_id: str


class BucketListing:
    """Use as a context manager: the temporary database goes with it. Used by one thread."""

    def __init__(self, blob_store: BlobStore, *, on_progress: Progress = lambda _: None) -> None:
        """Lists the whole bucket."""
        self._database = sqlite3.connect("")  # a private file that SQLite removes
        self._database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + _SCHEMA)
        self.objects = 0
        batch: list[BlobInfo] = []
        for blob in blob_store.list(""):
            batch.append(blob)
            if len(batch) == _INSERTED_AT_ONCE:
                self._insert(batch)
                on_progress(self.objects)
                batch.clear()
        self._insert(batch)
        on_progress(self.objects)
        self._database.executescript(_INDEXES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def projects(self) -> list[str]:
        """Ids of the projects that have any object, sorted."""
        tables = ("chunks", "records", "manifests")
        union = " UNION ".join(f"SELECT project FROM {table}" for table in tables)  # noqa: S608  (the names above)
        return [row[0] for row in self._database.execute(f"{union} ORDER BY 1")]

    def subjects(self, project_id: str, kind: str) -> Iterator[str]:
        """Ids that have a record of this kind, sorted."""
        query = "SELECT DISTINCT subject FROM records WHERE project = ? AND kind = ? ORDER BY subject"
        yield from self._first_column(query, (project_id, kind))

    def records(self, project_id: str, kind: str, subject_id: str) -> list[tuple[str, int, int]]:
        """Key, version and size of a subject's records, the newest first."""
        query = (
            "SELECT key, version, size FROM records WHERE project = ? AND kind = ? AND subject = ?"
            " ORDER BY version DESC, key DESC"
        )
        return list(self._database.execute(query, (project_id, kind, subject_id)))

    def checkpoints_with_manifests(self, project_id: str) -> Iterator[str]:
        """Ids of checkpoints that any manifest lies of, sorted."""
        query = "SELECT DISTINCT checkpoint FROM manifests WHERE project = ? ORDER BY checkpoint"
        yield from self._first_column(query, (project_id,))

    def manifests(self, checkpoint_id: str) -> list[tuple[int, str, int]]:
        """Rank, key and size of a checkpoint's manifests."""
        query = "SELECT rank, key, size FROM manifests WHERE checkpoint = ? ORDER BY rank, key"
        return list(self._database.execute(query, (checkpoint_id,)))

    def size_of(self, key: str) -> int | None:
        """The size of an object that is neither chunk, record nor manifest: of an index; None when there is none."""
        row = self._database.execute("SELECT size FROM others WHERE key = ?", (key,)).fetchone()
        return None if row is None else int(row[0])

    def has_chunk(self, key: str, size_bytes: int) -> bool:
        """Whether a chunk object of this size lies under the key."""
        query = "SELECT 1 FROM chunks WHERE key = ? AND size = ?"
        return self._database.execute(query, (key, size_bytes)).fetchone() is not None

    def chunks_of(self, project_id: str, digests: Sequence[str]) -> dict[str, list[ListedChunk]]:
        """The objects of each digest, the last upload first."""
        found: dict[str, list[ListedChunk]] = {}
        for start in range(0, len(digests), _LOOKED_UP_AT_ONCE):
            batch = digests[start : start + _LOOKED_UP_AT_ONCE]
            query = (
                "SELECT digest, key, size, upload, checkpoint FROM chunks"  # noqa: S608  (question marks only)
                f" WHERE project = ? AND digest IN ({', '.join('?' * len(batch))}) ORDER BY upload DESC, key DESC"
            )
            for row in self._database.execute(query, (project_id, *batch)):
                found.setdefault(row[0], []).append(ListedChunk(*row))
        return found

    def chunk_objects(self, project_id: str) -> int:
        """How many chunk objects a project has."""
        row = self._database.execute("SELECT count(*) FROM chunks WHERE project = ?", (project_id,)).fetchone()
        return int(row[0])

    def _first_column(self, query: str, parameters: Sequence[str]) -> Iterator[str]:
        return (row[0] for row in self._database.execute(query, parameters).fetchall())

    def _insert(self, blobs: Sequence[BlobInfo]) -> None:
        rows: dict[str, list[tuple[object, ...]]] = {"chunks": [], "records": [], "manifests": [], "others": []}
        for blob in blobs:
            table, row = _row_of(blob)
            rows[table].append(row)
        for table, inserted in rows.items():
            if inserted:
                marks = ", ".join("?" * len(inserted[0]))
                statement = f"INSERT OR REPLACE INTO {table} VALUES ({marks})"  # noqa: S608  (our own tables)
                self._database.executemany(statement, inserted)
        self.objects += len(blobs)


def _row_of(blob: BlobInfo) -> tuple[str, tuple[object, ...]]:
    key, size = blob.key, blob.size_bytes
    project_id, _, rest = key.partition("/")
    folder = rest.partition("/")[0]
    if folder == keys.CHUNKS and (chunk := keys.parse_chunk_key(key)):
        return "chunks", (project_id, chunk.digest, key, size, chunk.upload, chunk.checkpoint_id)
    if folder == keys.MANIFESTS and (manifest := keys.parse_manifest_key(key)):
        return "manifests", (project_id, *manifest, key, size)
    record = keys.parse_record_key(key)
    if record is not None and key.startswith(keys.PROJECTS):
        return "records", (record.subject_id, PROJECT, record.subject_id, record.version, key, size)
    if record is not None and folder in (keys.COMMITS, keys.OPENS, keys.RUNS, keys.ATTEMPTS):
        return "records", (project_id, folder, record.subject_id, record.version, key, size)
    return "others", (key, size)
