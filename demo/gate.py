"""A gate in front of the service: passes HTTP requests on and calls back at the n-th one of a name.

It lets the demo and the kill tests cut a save at any request. Loopback only; two threads a connection; no pipelining.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

_HEAD_LIMIT = 64 * 1024
_PIECE = 256 * 1024


class Tally:
    """How many matching requests there were. Thread-safe; traps of several gates may count together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def next(self) -> int:
        """Counts one more."""
        with self._lock:
            self._count += 1
            return self._count


@dataclass(frozen=True, slots=True)
class Trap:
    """Calls `spring` at the `count`-th request whose "METHOD path" matches `pattern`.

    `before`: the request has arrived and is passed on afterwards, if anyone is left. `after`: the service has answered
    and the answer is passed back afterwards, if anyone is left.
    """

    pattern: str
    count: int
    spring: Callable[[], None]
    when: Literal["before", "after"] = "before"
    tally: Tally = field(default_factory=Tally)


class Gate:
    """Listens on a free port of 127.0.0.1 and passes everything to `target_port`."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests: list[str] = []
        """Every "METHOD path" since the last `set_trap`, in order of arrival."""
        self._trap: Trap | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="gate", daemon=True).start()

    def set_trap(self, trap: Trap | None) -> None:
        """Arms one trap, or none."""
        with self._lock:
            self._trap, self.requests = trap, []

    def close(self) -> None:
        """Stops accepting; open connections end with their peers."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        answered = _Answers()
        try:
            with client, socket.create_connection(("127.0.0.1", self._target_port)) as server:
                threading.Thread(target=_pass_answers, args=(server, client, answered), daemon=True).start()
                try:
                    self._pass_requests(client, server, answered)
                finally:
                    _end(server)  # closing alone tells the service nothing while the other thread is in recv
        except OSError:
            return  # one side went away: what this gate is for

    def _pass_requests(self, client: socket.socket, server: socket.socket, answers: _Answers) -> None:
        pending = b""
        while True:
            while b"\r\n\r\n" not in pending:
                piece = client.recv(_PIECE)
                if not piece or len(pending) > _HEAD_LIMIT:
                    return
                pending += piece
            head, _, pending = pending.partition(b"\r\n\r\n")
            sprung = self._sprung(" ".join(head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")[:2]))
            if sprung is not None and sprung.when == "before":
                sprung.spring()
            answers.spring_at_next = sprung.spring if sprung is not None and sprung.when == "after" else None
            length = re.search(rb"(?im)^content-length:\s*(\d+)", head)
            server.sendall(head + b"\r\n\r\n")
            pending = _pass_body(client, server, pending, int(length[1]) if length else 0)

    def _sprung(self, request: str) -> Trap | None:
        with self._lock:
            self.requests.append(request)
            trap = self._trap
            if trap is None or not re.search(trap.pattern, request) or trap.tally.next() != trap.count:
                return None
            self._trap = None
            return trap


@dataclass(slots=True)
class _Answers:
    """What the answering thread of a connection does at the next answer."""

    spring_at_next: Callable[[], None] | None = None


def _pass_body(client: socket.socket, server: socket.socket, pending: bytes, remaining: int) -> bytes:
    """Passes `remaining` bytes on, `pending` first; gives back what came behind them."""
    while remaining:
        if not pending:
            pending = client.recv(min(_PIECE, remaining))
            if not pending:
                raise ConnectionError("the client went away in the middle of a body")
        body, pending = pending[:remaining], pending[remaining:]
        server.sendall(body)
        remaining -= len(body)
    return pending


def _pass_answers(server: socket.socket, client: socket.socket, answers: _Answers) -> None:
    try:
        while piece := server.recv(_PIECE):
            if answers.spring_at_next is not None:
                spring, answers.spring_at_next = answers.spring_at_next, None
                spring()
            client.sendall(piece)
    except OSError:
        return  # the other side went away
    finally:
        _end(client)  # a service that went away ends the client's wait


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
