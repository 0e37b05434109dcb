"""How a replica starts, what it leaves alone, and when it says that it should be sent nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from shardkeep_service.database.migrate import head_revision
from tests.servers.migrated_databases import MigratedDatabases
from tests.servers.postgres import Postgres
from tests.service_process import ServiceProcess
from tests.waiting import wait_until


def replica_of(url: str, directory: Path, name: str = "replica") -> ServiceProcess:
    return ServiceProcess(directory / "shared", env={"SHARDKEEP_SERVICE_DATABASE_URL": url}, name=name)


def refusal_of(url: str, directory: Path) -> str:
    """What a replica that does not start says."""
    replica = replica_of(url, directory)
    replica.start(wait=False)
    assert replica.wait_exit() == 1
    return replica.log


@pytest.fixture
def url(migrated_databases: MigratedDatabases) -> Iterator[str]:
    with migrated_databases.database() as url:
        yield url


def set_revision(postgres: Postgres, url: str, revision: str, *, oldest_code: str) -> None:
    """As a newer version's migration leaves it."""
    with postgres.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])
        connection.execute("INSERT INTO schema_support VALUES (%s, %s)", [revision, oldest_code])


def test_replicas_share_a_directory_and_leave_neither_lock_nor_token_in_it(tmp_path: Path, url: str) -> None:
    with replica_of(url, tmp_path, "one") as one, replica_of(url, tmp_path, "two") as two:
        assert one.is_ready()
        assert two.is_ready()
        assert sorted(path.name for path in one.data_dir.iterdir()) == ["blobs"]
        assert not one.home.exists()
        assert "no_tokens" in one.log
        password = make_url(url).password
        assert password
        assert password not in one.log


def test_a_replica_does_not_migrate_and_says_who_does(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database()
    assert "the database is empty; run `shardkeep-service migrate` once" in refusal_of(url, tmp_path)
    with postgres.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
    assert row == (0,)
    postgres.drop_database(url)


def test_a_replica_migrates_where_the_setting_says_so(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database()
    replica = replica_of(url, tmp_path)
    replica.env["SHARDKEEP_SERVICE_MIGRATE_AT_START"] = "true"
    with replica:
        assert replica.is_ready()
    postgres.drop_database(url)


def test_a_replica_starts_on_the_next_schema_and_is_refused_by_a_later_one(
    tmp_path: Path, postgres: Postgres, url: str
) -> None:
    set_revision(postgres, url, "next", oldest_code=head_revision())
    with replica_of(url, tmp_path) as replica:
        assert replica.is_ready()
        assert "schema_is_newer" in replica.log

    set_revision(postgres, url, "later", oldest_code="next")
    assert "the database is at revision later, which needs code of revision next" in refusal_of(url, tmp_path)


def test_a_running_replica_is_ready_on_the_next_schema_and_no_longer_on_a_later_one(
    tmp_path: Path, postgres: Postgres, url: str
) -> None:
    with replica_of(url, tmp_path) as replica:
        set_revision(postgres, url, "next", oldest_code=head_revision())
        time.sleep(6)  # the checks are remembered for five seconds
        assert replica.is_ready()
        set_revision(postgres, url, "later", oldest_code="next")
        wait_until(lambda: not replica.is_ready())


def test_a_replica_outlives_its_database_server_and_is_not_ready_meanwhile(tmp_path: Path) -> None:
    server = Postgres()
    try:
        server.start()
        url = server.new_database()
        replica = replica_of(url, tmp_path)
        replica.env["SHARDKEEP_SERVICE_MIGRATE_AT_START"] = "true"
        with replica:
            server.kill()
            wait_until(lambda: not replica.is_ready())
            server.start()
            wait_until(replica.is_ready)
    finally:
        server.close()


def test_a_database_that_does_not_answer_is_named_and_its_password_is_not(tmp_path: Path, url: str) -> None:
    wrong = make_url(url).set(password="a-wrong-secret").render_as_string(hide_password=False)
    said = refusal_of(wrong, tmp_path)
    assert "password authentication failed" in said
    assert "a-wrong-secret" not in said


def test_migrate_prints_the_revision_and_may_be_repeated(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "shardkeep_service", "migrate"],
            env={**os.environ, "SHARDKEEP_SERVICE_DATABASE_URL": url},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        )
        assert done.stdout.strip() == head_revision()
    assert list(tmp_path.iterdir()) == []
    postgres.drop_database(url)
