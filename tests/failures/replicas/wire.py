"""A wire to the database that is cut: passes bytes on and calls back at the n-th message that clients send."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final, Literal

_PIECE: Final = 64 * 1024
When = Literal["before", "after"]


class Wire:
    """Listens on a free port of 127.0.0.1 and passes everything to `target_port`.

    A message is what one send of a client brings: psycopg sends a statement at once. `before`: the server never hears
    of it; `after`: the server has carried it out and its answer is lost.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self.messages = 0
        """Counted since the last `cut_at`."""
        self._cut: tuple[int, When, Callable[[], None]] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def cut_at(self, message: int, when: When, spring: Callable[[], None]) -> None:
        """Calls `spring` at the `message`-th message from now on, once."""
        with self._lock:
            self.messages, self._cut = 0, (message, when, spring)

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
        answered = threading.Event()
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._target_port)) as server:
            threading.Thread(target=_pass_answers, args=(server, client, answered), daemon=True).start()
            try:
                while piece := client.recv(_PIECE):
                    cut = self._next()
                    if cut is not None and cut[0] == "before":
                        cut[1]()
                        return
                    answered.clear()
                    server.sendall(piece)
                    if cut is not None:
                        answered.wait(5)
                        cut[1]()
                        return
            finally:
                _end(server)

    def _next(self) -> tuple[When, Callable[[], None]] | None:
        with self._lock:
            self.messages += 1
            if self._cut is None or self.messages != self._cut[0]:
                return None
            _, when, spring = self._cut
            self._cut = None
            return when, spring


def _pass_answers(server: socket.socket, client: socket.socket, answered: threading.Event) -> None:
    try:
        while piece := server.recv(_PIECE):
            answered.set()
            client.sendall(piece)
    except OSError:
        return  # the other side went away
    finally:
        answered.set()
        _end(client)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
