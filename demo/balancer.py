"""A small load balancer: connections go to replicas in turn, those that /readyz speaks for.

It stands for the proxy of a real cluster (deploy/haproxy.cfg is one). It knows nothing of requests: when a replica
dies, its connections end, and the client asks again over a new one. Loopback only; two threads a connection.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Self

_LOOK_SECONDS = 0.2
_CONNECT_SECONDS = 1.0
_PIECE = 256 * 1024


class Balancer:
    """Listens on a free port of 127.0.0.1 and passes connections on to `ports`."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.passed_bytes = 0
        """What clients sent through it so far, heads included."""
        self.served: dict[int, int] = dict.fromkeys(ports, 0)
        """Connections by port."""
        self._ready: dict[int, bool] = dict.fromkeys(ports, True)
        self._turns = itertools.cycle(ports)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="balancer", daemon=True).start()
        threading.Thread(target=self._look, name="balancer-look", daemon=True).start()

    def close(self) -> None:
        """Stops accepting; open connections end with their peers."""
        self._closed.set()
        self._listener.close()

    def _look(self) -> None:
        """Asks every replica whether it is ready, again and again."""
        while not self._closed.wait(_LOOK_SECONDS):
            for port in self._ready:
                self._ready[port] = _is_ready(port)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            replica = self._connect()
            if replica is None:
                return  # nobody is there: the client hears it and asks again
            with replica:
                threading.Thread(target=_pass, args=(replica, client), daemon=True).start()
                try:
                    self._pass_counted(client, replica)
                finally:
                    _end(replica)

    def _connect(self) -> socket.socket | None:
        """A connection to the next replica that takes one: those not ready come last."""
        with self._lock:
            turn = [next(self._turns) for _ in self._ready]
            next(self._turns)
        for port in sorted(turn, key=lambda port: not self._ready[port]):
            with contextlib.suppress(OSError):
                replica = socket.create_connection(("127.0.0.1", port), timeout=_CONNECT_SECONDS)
                replica.settimeout(None)
                with self._lock:
                    self.served[port] += 1
                return replica
        return None

    def _pass_counted(self, client: socket.socket, replica: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(_PIECE):
                with self._lock:
                    self.passed_bytes += len(piece)
                replica.sendall(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=_CONNECT_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _pass(source: socket.socket, destination: socket.socket) -> None:
    try:
        while piece := source.recv(_PIECE):
            destination.sendall(piece)
    except OSError:
        return  # the other side went away
    finally:
        _end(destination)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
