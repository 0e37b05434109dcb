"""Keep-alive connections whose requests another thread can end: closing a socket leaves a thread waiting on it."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from typing import Any, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class CuttablePools(urllib3.PoolManager):
    """Connections to one service. Thread-safe."""

    def __init__(self, *, num_pools: int, maxsize: int) -> None:
        super().__init__(num_pools=num_pools, maxsize=maxsize, retries=False)
        self._sockets = _Sockets()
        self.pool_classes_by_scheme = {
            "http": _pool_of(urllib3.HTTPConnectionPool, HTTPConnection, self._sockets),
            "https": _pool_of(urllib3.HTTPSConnectionPool, HTTPSConnection, self._sockets),
        }

    def cut(self) -> None:
        """End every request under way, and every later one, as if the service had gone away."""
        self._sockets.shut_down()


class _Sockets:
    """The sockets of connections that are made, as long as they live."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._is_shut = False

    def add(self, made: socket.socket) -> None:
        with self._lock:
            self._made.add(made)
            if self._is_shut:
                _shut(made)

    def shut_down(self) -> None:
        with self._lock:
            self._is_shut = True
            for made in self._made:
                _shut(made)


def _shut(made: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed, or its peer was first
        socket.socket.shutdown(made, socket.SHUT_RDWR)  # TLS's own would take the session from a thread that reads


def _pool_of(
    pool: type[urllib3.HTTPConnectionPool], connection: type[HTTPConnection], sockets: _Sockets
) -> type[urllib3.HTTPConnectionPool]:
    def connect(self: Any) -> None:
        connection.connect(self)
        sockets.add(self.sock)

    noted = type(f"Noted{connection.__name__}", (connection,), {"connect": connect})
    return cast("type[urllib3.HTTPConnectionPool]", type(f"Noted{pool.__name__}", (pool,), {"ConnectionCls": noted}))
