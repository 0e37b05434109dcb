"""Requests to a service process: the training job of the unit tests over a real process, and raw bytes over sockets."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import urllib3

from shardkeep.format.chunks import ChunkRef, chunk_ref
from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.service import create_token
from shardkeep_service.database.database import Database
from shardkeep_service.projects.repository import project_named
from tests.service_process import ServiceProcess
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training, pack, weights
from tests.warm_process import run_program


class ProcessClient(LocalService):
    """The requests of `LocalService`, sent to a process."""

    def __init__(self, process: ServiceProcess, *, token: str | None = None) -> None:
        self._pool = urllib3.PoolManager(maxsize=16, retries=False)
        self._url = process.url
        self._headers = {"authorization": f"Bearer {token or process.token}"}


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Status, lower-case headers and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json", (self.status, self.headers, self.body[:500])
        document: dict[str, Any] = json.loads(self.body, parse_constant=_refuse_constant)
        assert document["status"] == self.status
        assert document["request_id"] == self.headers.get("x-request-id")
        return document


def _refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def exchange(
    service: ServiceProcess, method: str, target: str, *, body: Any = None, headers: Mapping[str, str] | None = None,
    token: str | None = None,
) -> RawAnswer:  # fmt: skip
    """One request on a connection of its own; the target is sent as it is, unnormalised."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    with closing(connection):
        given = {"authorization": f"Bearer {token or service.token}", **(headers or {})}
        connection.putrequest(method, target, skip_accept_encoding=True)
        if body is not None and "content-length" not in given and "transfer-encoding" not in given:
            given["content-length"] = str(len(body))
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        if body is not None:
            connection.send(body)
        answer = connection.getresponse()
        return RawAnswer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())


@dataclass(frozen=True, slots=True)
class Payload:
    """A chunk to send."""

    data: bytes
    ref: ChunkRef

    @property
    def digest(self) -> str:
        return self.ref.digest

    @property
    def headers(self) -> dict[str, str]:
        return {routes.CRC64_HEADER: f"{self.ref.crc64:016x}"}


def payload(size_bytes: int) -> Payload:
    """Random bytes."""
    data = os.urandom(size_bytes)
    return Payload(data, chunk_ref([data]))


def open_checkpoint(service: ServiceProcess, *, project: str = "project", run: str = "run") -> str:
    """The id of a fresh open checkpoint of world size 1, in a new attempt."""
    training = Training(ProcessClient(service), project, run)
    return training.open_all(training.start(1, fresh=True), save=1, step=1, world_size=1)


def chunk_path(checkpoint: str, digest: str) -> str:
    """The target of a chunk."""
    return routes.path(routes.CHUNK, checkpoint=checkpoint, digest=digest)


def put_chunk(service: ServiceProcess, checkpoint: str, chunk: Payload, **options: Any) -> RawAnswer:
    """Sends a chunk; `body` and `headers` override."""
    headers = {**chunk.headers, **options.pop("headers", {})}
    body = options.pop("body", chunk.data)
    return exchange(service, "PUT", chunk_path(checkpoint, chunk.digest), body=body, headers=headers, **options)


@contextmanager
def started_upload(
    service: ServiceProcess, checkpoint: str, chunk: Payload, *, sent_bytes: int, token: str | None = None
) -> Iterator[socket.socket]:
    """A connection that announced a chunk and sent the first bytes of it."""
    head = (
        f"PUT {chunk_path(checkpoint, chunk.digest)} HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {token or service.token}\r\n"
        f"{routes.CRC64_HEADER}: {chunk.ref.crc64:016x}\r\ncontent-length: {len(chunk.data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(head.encode() + chunk.data[:sent_bytes])
        yield connection


def read_answer(connection: socket.socket, method: str = "PUT") -> RawAnswer:
    """The next answer on a raw connection."""
    answer = http.client.HTTPResponse(connection, method=method)
    answer.begin()
    return RawAnswer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())


def is_stored(service: ServiceProcess, checkpoint: str, chunk: Payload) -> bool:
    """Whether negotiating says that the chunk is present."""
    offer = {"digest": chunk.digest, "size": len(chunk.data), "crc64": chunk.ref.crc64}
    path = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
    answer = ProcessClient(service).ask("POST", path, {"rank": 0, "chunks": [offer]})
    return bool(answer["chunks"][0]["present"])


def gauge(service: ServiceProcess, name: str) -> float:
    """What /metrics says of a gauge without labels."""
    metrics = exchange(service, "GET", "/metrics").body.decode()
    return float(re.findall(rf"^{name} (\S+)$", metrics, re.MULTILINE)[0])


def held_bytes(service: ServiceProcess) -> float:
    """How much of the budget bodies being received hold."""
    return gauge(service, "shardkeep_upload_budget_used_bytes")


def command(service: ServiceProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `shardkeep-service` on the data directory of a service."""
    env = {**os.environ, "SHARDKEEP_HOME": str(service.home)}
    return run_program("shardkeep-service", *arguments, "--data", str(service.data_dir), env=env)


def new_token(service: ServiceProcess, scope: str, *, project: str | None = None) -> str:
    """A token made straight in the service's database, as its command line does."""
    database = Database(f"sqlite:///{service.data_dir / 'shardkeep.db'}")
    with database.write() as session:
        owner = project_named(session, project) if project else None
        project_ids = [owner.id] if owner else []
        _, text = create_token(
            session, now=database.now(session), scope=Scope(scope), name=f"{scope} test", project_ids=project_ids
        )
    database.close()
    return text


def committed_checkpoint(
    service: ServiceProcess, *, project: str = "project", run: str = "committed", rows: int = 8
) -> tuple[str, Payload]:
    """A committed checkpoint of one rank, and its only chunk of 16 bytes a row."""
    training = Training(ProcessClient(service), project, run)
    packed = pack(weights(1, 1, rows=rows)[0], rank=0, world_size=1, step=1)
    checkpoint = training.save(training.start(1, fresh=True), save=1, step=1, world_size=1, packed=[packed])
    (ref, data), = packed.chunks  # fmt: skip
    return checkpoint, Payload(data, ref)
