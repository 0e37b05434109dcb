"""The PostgreSQL of the tests: databases of their own, and data that outlives a crash of the server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.servers.postgres import Postgres
from tests.waiting import wait_until


def test_each_database_is_empty_and_one_may_be_copied(postgres: Postgres) -> None:
    first = postgres.new_database()
    with postgres.connect(first) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS n")
    copy = postgres.new_database(template=first)
    with postgres.connect(copy) as connection:
        assert connection.execute("SELECT n FROM t").fetchone() == (7,)
    with postgres.connect(postgres.new_database()) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)
    postgres.drop_database(copy)


def test_a_server_of_its_own_comes_back_on_the_same_port_with_its_data() -> None:
    server = Postgres()
    try:
        server.start()
        url = server.new_database()
        with server.connect(url) as connection:
            connection.execute("CREATE TABLE t AS SELECT 7 AS n")
        server.kill()
        server.start()
        with server.connect(url) as connection:
            assert connection.execute("SELECT n FROM t").fetchone() == (7,)
    finally:
        server.close()


def test_a_server_ends_with_the_process_that_started_it_however_that_ends() -> None:
    starting = (
        "import sys, time; from tests.servers.postgres import Postgres; server = Postgres().start();"
        " print(server.pid, flush=True); time.sleep(60)"
    )
    tests = subprocess.Popen([sys.executable, "-c", starting], stdout=subprocess.PIPE, text=True)
    assert tests.stdout is not None
    pid = int(tests.stdout.readline())
    tests.kill()
    tests.wait(30)
    tests.stdout.close()
    wait_until(lambda: not Path(f"/proc/{pid}/cmdline").exists())
