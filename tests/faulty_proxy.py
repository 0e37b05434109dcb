"""A real HTTP/1.1 proxy in front of a service that damages chosen exchanges: for tests of what networks do.

Each exchange is forwarded whole to the upstream; then the first fault that applies decides what the client gets.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(slots=True)
class Exchange:
    """A request, and the upstream's answer to it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the client gets: `None` members are the upstream's.

    `cut_after` closes the connection after so many bytes of the body; `framing` says how its end is told: by length, by
    chunked coding, or by closing only.
    """

    status: int | None = None
    headers: dict[str, str] | None = None
    body: bytes | None = None
    cut_after: int | None = None
    framing: str = "length"
    nothing: bool = False


Action = Callable[[Exchange], Reply]
DROPPED = Reply(nothing=True)


@dataclass(slots=True)
class Fault:
    """`action` for the next `times` exchanges whose `METHOD /path` matches; `before` comes before forwarding."""

    pattern: str
    action: Action
    times: int = 1
    forwards: bool = True
    before: Callable[[Exchange], None] | None = None

    def applies(self, exchange: Exchange) -> bool:
        return self.times > 0 and re.search(self.pattern, f"{exchange.method} {exchange.path}") is not None


class FaultyProxy:
    """Listens on a free port of loopback and forwards to `upstream_port`. With a `certificate` it speaks TLS."""

    def __init__(self, upstream_port: int, *, certificate: Path | None = None) -> None:
        self._upstream_port = upstream_port
        self._tls = None if certificate is None else ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        if self._tls is not None and certificate is not None:
            self._tls.load_cert_chain(certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._open: set[socket.socket] = set()
        self.exchanges: list[Exchange] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def fail(self, pattern: str, action: Action | Reply, *, times: int = 1, forwards: bool = True) -> Fault:
        """Damage the next `times` exchanges that match; with `forwards=False` the upstream never hears of them."""
        chosen: Action = (lambda _: action) if isinstance(action, Reply) else action
        fault = Fault(pattern, chosen, times, forwards)
        with self._lock:
            self._faults.append(fault)
        return fault

    def tamper(self, pattern: str, before: Callable[[Exchange], None], *, times: int = 1) -> Fault:
        """Do something to the next `times` requests that match, or to the world, before they are forwarded."""
        fault = Fault(pattern, lambda _: Reply(), times, before=before)
        with self._lock:
            self._faults.append(fault)
        return fault

    def forget(self) -> None:
        """Drop the faults and what was seen so far."""
        with self._lock:
            self._faults.clear()
            self.exchanges.clear()

    def count(self, pattern: str) -> int:
        """How many exchanges so far match."""
        with self._lock:
            return sum(re.search(pattern, f"{item.method} {item.path}") is not None for item in self.exchanges)

    def sent_bytes(self, pattern: str) -> int:
        """How many body bytes the upstream answered to exchanges that match."""
        with self._lock:
            found = [item for item in self.exchanges if re.search(pattern, f"{item.method} {item.path}")]
        return sum(len(item.answer) for item in found)

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(connection)
                self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:  # the client does not trust us
                connection.close()
                return
        with connection, connection.makefile("rb") as reader, contextlib.suppress(OSError):
            while (exchange := _read_request(reader.readline, reader.read, connection.sendall)) is not None:
                fault = self._fault_of(exchange)
                if fault is not None and fault.before is not None:
                    fault.before(exchange)
                if (fault is None or fault.forwards) and not self._forward(exchange):
                    break
                with self._lock:
                    self.exchanges.append(exchange)
                reply = fault.action(exchange) if fault is not None else Reply()
                if reply.nothing or not _answer(connection, exchange, reply):
                    break
        with self._lock:
            self._open.discard(connection)

    def _fault_of(self, exchange: Exchange) -> Fault | None:
        with self._lock:
            fault = next((item for item in self._faults if item.applies(exchange)), None)
            if fault is not None:
                fault.times -= 1
            return fault

    def _forward(self, exchange: Exchange) -> bool:
        upstream = http.client.HTTPConnection("127.0.0.1", self._upstream_port, timeout=60)
        headers = {name: value for name, value in exchange.headers.items() if name != "connection"}
        try:
            upstream.request(exchange.method, exchange.path, body=exchange.body or None, headers=headers)
            response = upstream.getresponse()
            exchange.status = response.status
            exchange.answer_headers = {name.lower(): value for name, value in response.getheaders()}
            exchange.answer = response.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            upstream.close()
        return True


def _read_request(
    readline: Callable[[], bytes], read: Callable[[int], bytes], send: Callable[[bytes], None]
) -> Exchange | None:
    line = readline().decode("latin-1").split()
    if len(line) != 3:
        return None
    headers: dict[str, str] = {}
    while (header := readline().decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.pop("expect", "").lower() == "100-continue":
        send(b"HTTP/1.1 100 Continue\r\n\r\n")
    return Exchange(line[0], line[1], headers, read(int(headers.get("content-length", 0))))


def _answer(connection: socket.socket, exchange: Exchange, reply: Reply) -> bool:
    """Send the reply; whether the connection can be used again."""
    body = exchange.answer if reply.body is None else reply.body
    status = reply.status or exchange.status
    headers = exchange.answer_headers if reply.headers is None else reply.headers
    framing = {"content-length", "transfer-encoding", "connection"}
    lines = [
        f"HTTP/1.1 {status} Whatever",
        *(f"{name}: {value}" for name, value in headers.items() if name not in framing),
    ]
    if reply.framing == "length":
        told = headers.get("content-length") if exchange.method == "HEAD" else None
        lines.append(f"content-length: {told or len(body)}")
    elif reply.framing == "chunked":
        lines.append("transfer-encoding: chunked")
    else:
        lines.append("connection: close")
    sent = body if reply.cut_after is None else body[: reply.cut_after]
    connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
    for part in _framed(sent, chunked=reply.framing == "chunked", ended=reply.cut_after is None):
        connection.sendall(part)
    return reply.cut_after is None and reply.framing != "close"


def _framed(body: bytes, *, chunked: bool, ended: bool) -> Iterable[bytes]:
    if not chunked:
        yield body
        return
    for start in range(0, len(body), 65536):
        part = body[start : start + 65536]
        yield b"%x\r\n" % len(part) + part + b"\r\n"
    if ended:
        yield b"0\r\n\r\n"
