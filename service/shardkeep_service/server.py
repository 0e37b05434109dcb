"""The process: one listening socket, uvicorn on it, and an orderly end.

After SIGTERM or SIGINT the socket stays open while requests run, so that what is under way can finish and everyone else
is told to come back; a second signal ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import signal
import socket
import time
from collections.abc import Generator
from typing import Final

import structlog
import uvicorn
from fastapi import FastAPI

from shardkeep_service.http_protocol import protocol_with
from shardkeep_service.service_context import ServiceContext

log = structlog.get_logger("shardkeep.server")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_BACKLOG: Final = 2048
_KEEP_ALIVE_SECONDS: Final = 75
"""Longer than any pause of a client that beats every 30 s, so that it rarely meets a connection being closed."""
_QUIET_SECONDS: Final = 0.3
"""Draining ends when nothing ran for this long: a rank's next chunk follows its last within it."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. OSError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL by which a client on this machine reaches the listener."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: FastAPI, listener: socket.socket) -> None:
    """Serves until a signal ends it."""
    context: ServiceContext = app.state.context
    config = uvicorn.Config(
        app,
        http=protocol_with(header_seconds=context.settings.header_timeout_seconds),
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(context.settings.trusted_proxies),
        forwarded_allow_ips=list(context.settings.trusted_proxies),
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    gc.collect()
    gc.freeze()  # what the start made stays; looking through it again and again costs 10 % of a small request
    DrainingServer(config, context).run(sockets=[listener])


class DrainingServer(uvicorn.Server):
    """uvicorn's server, with a drain between the signal and its own shutdown."""

    def __init__(self, config: uvicorn.Config, context: ServiceContext) -> None:
        super().__init__(config)
        self._context = context
        self._draining: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handles signals on the loop and, unlike uvicorn, does not raise them again at the end: the exit code is 0."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        if self._draining is not None:
            log.warning("stopping_at_once", running=self._context.drain.running)
            self.should_exit = self.force_exit = True
            return
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        drain, seconds = self._context.drain, self._context.settings.shutdown_seconds
        drain.begin()
        log.info("draining", running=drain.running, at_most_seconds=seconds)
        until = time.monotonic() + seconds
        quiet_since = time.monotonic()
        while time.monotonic() < until and time.monotonic() - quiet_since < _QUIET_SECONDS:
            await asyncio.sleep(0.02)
            if drain.running:
                quiet_since = time.monotonic()
        if drain.running:
            log.warning("requests_cut", running=drain.running, after_seconds=seconds)
        self.should_exit = True
