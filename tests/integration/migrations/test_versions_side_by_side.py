"""Which version runs on which schema: its own and the next release's, however little it knows of the latter."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from shardkeep_service.database import migrate
from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseBusy
from shardkeep_service.database.migrate import (
    MigrationRefused,
    check_schema,
    current_revision,
    head_revision,
    migrations_dir,
    prepare_schema,
    upgrade,
)
from tests.servers.postgres import Postgres
from tests.unit.service.replicas.at_once import at_once

NEXT = """
from alembic import op
import sqlalchemy as sa

revision = "{revision}"
down_revision = "{before}"
oldest_code = {oldest_code!r}


def upgrade() -> None:
    op.add_column("projects", sa.Column("new_{revision}", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("projects", "new_{revision}")
"""


class Version:
    """A version of the service by its migrations: ours, or a later one that has more of them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._monkeypatch = monkeypatch

    def use(self) -> None:
        """From now on the code is of this version."""
        self._monkeypatch.setattr(migrate, "migrations_dir", lambda: self._directory)

    def add(self, revision: str, *, before: str, oldest_code: str | None) -> None:
        """Gives it one more migration."""
        path = self._directory / "versions" / f"{revision}.py"
        path.write_text(NEXT.format(revision=revision, before=before, oldest_code=oldest_code))


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Version:
    return Version(migrations_dir(), monkeypatch)


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Version:
    directory = tmp_path / "later"
    shutil.copytree(migrations_dir(), directory, ignore=shutil.ignore_patterns("__pycache__"))
    return Version(directory, monkeypatch)


def test_a_version_runs_on_the_next_schema_which_it_does_not_know(
    database: Database, ours: Version, later: Version
) -> None:
    head = head_revision()
    later.add("next", before=head, oldest_code=None)
    later.use()
    assert upgrade(database) == "next"

    ours.use()

    assert check_schema(database) == "next"
    assert prepare_schema(database, migrate=True) == "next"
    assert current_revision(database) == "next"


def test_a_version_is_refused_by_the_schema_after_the_next_and_told_what_to_do(
    database: Database, ours: Version, later: Version
) -> None:
    later.add("next", before=head_revision(), oldest_code=None)
    later.add("after", before="next", oldest_code=None)
    later.use()
    upgrade(database)

    ours.use()

    for refused in (check_schema, partial(prepare_schema, migrate=True), upgrade):
        with pytest.raises(MigrationRefused, match=r"revision after, which needs code of revision next.*newer version"):
            refused(database)


def test_a_release_of_several_migrations_says_that_the_release_before_may_run_on_it(
    database: Database, ours: Version, later: Version
) -> None:
    head = head_revision()
    later.add("next", before=head, oldest_code=None)
    later.add("after", before="next", oldest_code=head)
    later.use()
    upgrade(database)

    ours.use()

    assert check_schema(database) == "after"


def test_a_newer_version_refuses_an_older_schema_until_it_is_migrated(
    database: Database, ours: Version, later: Version
) -> None:
    upgrade(database)
    later.add("next", before=head_revision(), oldest_code=None)
    later.use()
    with pytest.raises(MigrationRefused, match="this version needs next; run `shardkeep-service migrate`"):
        prepare_schema(database, migrate=False)
    assert prepare_schema(database, migrate=True) == "next"


def test_an_empty_database_is_refused_unless_it_may_be_migrated(database: Database) -> None:
    with pytest.raises(MigrationRefused, match="empty; run `shardkeep-service migrate`"):
        prepare_schema(database, migrate=False)
    assert prepare_schema(database, migrate=True) == head_revision()


def test_a_schema_that_says_nothing_of_older_code_is_refused(database: Database) -> None:
    upgrade(database)
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = 'unheard_of'"))
    with pytest.raises(MigrationRefused, match="newer version"):
        check_schema(database)


def test_processes_that_migrate_at_the_same_moment_do_it_once(postgres: Postgres) -> None:
    url = postgres.new_database()
    databases = [Database(url) for _ in range(4)]
    assert at_once(*(partial(upgrade, database) for database in databases)) == [head_revision()] * 4
    for database in databases:
        database.close()
    postgres.drop_database(url)


def test_a_migration_waits_for_transactions_on_its_tables_in_short_turns(
    postgres: Postgres, later: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_database()
    database = Database(url)
    before = upgrade(database)
    later.add("next", before=before, oldest_code=None)
    later.use()
    monkeypatch.setattr(migrate, "_TABLE_LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr(migrate, "_TRIES", 3)
    with postgres.connect(url) as busy:
        held = busy.transaction()
        held.__enter__()
        busy.execute("SELECT count(*) FROM projects")
        with pytest.raises(DatabaseBusy):
            upgrade(database)
        assert current_revision(database) == before
        between_two_tries = SimpleNamespace(sleep=lambda _: held.__exit__(None, None, None))
        monkeypatch.setattr(migrate, "time", between_two_tries)
        assert upgrade(database) == "next"
    database.close()
    postgres.drop_database(url)
