"""One bucket and, one after another, the databases of a service over it: lost, rebuilt, restored from a backup."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.catalogue.commit_records import write_commit_records
from shardkeep_service.catalogue.rebuilding.rebuild import rebuild
from shardkeep_service.catalogue.rebuilding.report import RebuildReport
from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.servers.migrated_databases import MigratedDatabases
from tests.unit.service.local_service import LocalService
from tests.unit.service.runs.run_sums import counted_sums, kept_sums


class Lives:
    """`databases` is None for SQLite. The bucket stays, whatever happens to the database."""

    def __init__(self, directory: Path, databases: MigratedDatabases | None) -> None:
        self._directory = directory
        self._databases = databases
        self._made: list[str] = []
        self._stack = contextlib.ExitStack()
        self.url = self._new()

    @property
    def blob_store(self) -> FileSystemBlobStore:
        return FileSystemBlobStore(self._directory / "service" / "blobs")

    def lose(self) -> None:
        """From now on the database is another, an empty one."""
        self.url = self._new()

    def backup(self) -> str:
        """A copy of the database as it is; no service may run."""
        if self._databases is None:
            copy = self._directory / f"{len(self._made)}-backup.db"
            shutil.copyfile(self.url.removeprefix("sqlite:///"), copy)
            return f"sqlite:///{copy}"
        url = self._databases.server.new_database(template=self.url)
        self._stack.callback(self._databases.server.drop_database, url)
        return url

    @contextlib.contextmanager
    def service(self, *, records: bool = True) -> Iterator[LocalService]:
        """A service over the bucket with the present database; what it did has records at its end."""
        with LocalService(self._directory / "service", database_url=self.url) as service:
            yield service
            if records:
                write_commit_records(service.context)

    @contextlib.contextmanager
    def context(self) -> Iterator[ServiceContext]:
        """What a command has: the database and the bucket, and no service."""
        database = Database(self.url)
        upgrade(database)
        settings = Settings(data_dir=self._directory / "service", database_url=self.url)
        context = ServiceContext(database, self.blob_store, settings)
        try:
            yield context
        finally:
            context.pools.close()
            database.close()

    def rebuild(self, *, add: bool = False) -> RebuildReport:
        """The sums of runs, which no record holds, are right after it."""
        with self.context() as context:
            report = rebuild(context, add=add)
            with context.database.read() as session:
                assert kept_sums(session) == counted_sums(session)
        return report

    def flip_a_bit(self, key: str, *, place: int = -20) -> None:
        """Damages a stored object."""
        path = self._directory / "service" / "blobs" / "objects" / key
        body = bytearray(path.read_bytes())
        body[place] ^= 1
        path.chmod(0o600)
        path.write_bytes(body)

    def close(self) -> None:
        self._stack.close()

    def _new(self) -> str:
        if self._databases is not None:
            return self._stack.enter_context(self._databases.database())
        url = f"sqlite:///{self._directory / f'{len(self._made)}.db'}"
        self._made.append(url)
        return url
