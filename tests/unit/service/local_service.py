"""The real application in a thread of this process, over a real database, with a clock that tests may set."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock
from urllib.parse import urlencode

import urllib3
import uvicorn
from sqlalchemy.orm import Session

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.service import create_token
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.checkpoints.control_plane import ControlPlane
from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import upgrade
from shardkeep_service.main import create_app
from shardkeep_service.projects.repository import project_named
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from tests.servers.migrated_databases import put_migrated_sqlite


def seen(version: int) -> dict[str, Any]:
    """The option of a request by which it says what version of its subject was seen."""
    return {"headers": {"if-match": f'"{version}"'}}


class ShiftedDatabase(Database):
    """A database whose clock runs ahead by what the test says. It waits for no disk: tests kill no machine."""

    ahead_micros = 0

    def _set_pragmas(self, connection: sqlite3.Connection, record: object) -> None:
        super()._set_pragmas(connection, record)
        connection.execute("PRAGMA synchronous=OFF")

    def now(self, session: Session) -> int:
        return super().now(session) + self.ahead_micros


@dataclass(frozen=True, slots=True)
class LocalAnswer:
    """What came back."""

    status: int
    content: bytes
    headers: urllib3.HTTPHeaderDict

    @property
    def is_success(self) -> bool:
        return self.status < 300

    def json(self) -> Any:
        return json.loads(self.content)


class LocalService:
    """Use as a context manager. Background tasks run where `housekeeping_seconds` is given; else tests call them.

    Two of them on one PostgreSQL (`database_url`) and one data directory, which holds the objects, are replicas.
    """

    def __init__(self, data_dir: Path, *, blob_store: BlobStore | None = None, **settings: Any) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(data_dir=data_dir, **settings)
        self._has_tasks = "housekeeping_seconds" in settings
        if self.settings.is_embedded:
            put_migrated_sqlite(data_dir / "shardkeep.db")
        self.database = ShiftedDatabase(self.settings.resolved_database_url)
        self.blob_store = blob_store or FileSystemBlobStore(data_dir / "blobs")
        self.context = ServiceContext(self.database, self.blob_store, self.settings)
        self.app = create_app(self.settings, context=self.context)
        config = uvicorn.Config(
            self.app, host="127.0.0.1", port=0, log_config=None, access_log=False, proxy_headers=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="local-service", daemon=True)
        self._pool = urllib3.PoolManager(maxsize=64, retries=False)
        self._url = ""
        self._headers: dict[str, str] = {}

    @property
    def control(self) -> ControlPlane:
        control_plane: ControlPlane = self.app.state.control_plane
        return control_plane

    def __enter__(self) -> Self:
        upgrade(self.database)
        without_tasks = mock.patch("shardkeep_service.main.background_tasks", return_value=[])
        with contextlib.nullcontext() if self._has_tasks else without_tasks:
            self._start()
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        self._headers = {"authorization": f"Bearer {self.new_token(Scope.ADMIN)}"}
        return self

    def _start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + 120
        while not self._server.started:
            assert self._thread.is_alive(), "the service did not start; its log says why"
            assert time.monotonic() < deadline, "the service takes too long to start"
            time.sleep(0.002)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.clear()
        self._server.should_exit = True
        self._thread.join(30)

    def new_token(self, scope: Scope, *, project: str | None = None) -> str:
        """The text of a new token, of one project where one is named."""
        with self.database.write() as session:
            owner = project_named(session, project) if project else None
            now = self.database.now(session)
            _, text = create_token(session, now=now, scope=scope, name="test", project_ids=[owner.id] if owner else [])
        return text

    def advance(self, seconds: float) -> None:
        """Moves database time forward."""
        self.database.ahead_micros += round(seconds * 1e6)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
    ) -> LocalAnswer:
        """One request, whatever its answer."""
        given = {**self._headers, **(headers or {})}
        sent = content
        if content is None and body is not None:
            given["content-type"] = "application/json"
            sent = json.dumps(body).encode()
        url = self._url + path + (f"?{urlencode(query)}" if query else "")
        answer = self._pool.request(method, url, body=sent, headers=given, redirect=False, timeout=60)
        return LocalAnswer(answer.status, answer.data, answer.headers)

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """The JSON answer of a request that must succeed."""
        answer = self.send(method, path, body, **options)
        assert answer.is_success, f"{method} {path}: {answer.status} {answer.content!r}"
        document: dict[str, Any] = answer.json()
        return document

    def refused(self, code: str, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        """The problem document of a request that must be refused with `code`."""
        answer = self.send(method, path, body, **options)
        assert not answer.is_success, f"{method} {path} was not refused: {answer.content!r}"
        problem: dict[str, Any] = answer.json()
        assert problem["code"] == code, problem
        assert answer.status == problem["status"]
        return problem

    def wait_until_settled(self, checkpoint_id: str, *, seconds: float = 120.0) -> dict[str, Any]:
        """The state answer once validation has ended."""
        path = routes.path(routes.STATE, checkpoint=checkpoint_id)
        deadline = time.monotonic() + seconds
        while True:
            state = self.ask("GET", path, query={"known": "validating", "wait_seconds": 5})
            if state["state"] != "validating":
                return state
            assert time.monotonic() < deadline, "validation did not end"
