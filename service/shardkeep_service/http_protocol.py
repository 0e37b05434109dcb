"""The HTTP protocol of a connection: uvicorn's on httptools, with bulk bytes past the parser in both directions.

A large body costs uvicorn five copies and a task switch every 64 KiB. Here the kernel writes what remains of a body
straight into the buffer of whoever reads it (`receive_into`), and files go out by sendfile (`send_file`).

Both are ASGI extensions in the scope; without them (under another server) bodies take the ordinary way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from shardkeep.protocol.error_codes import PROBLEM_CONTENT_TYPE, ErrorCode

RECEIVE_INTO: Final = "shardkeep.receive_into"
"""`async (out, idle_timeout_seconds) -> int`: fills `out`, which is as long as the body, and gives how much arrived.
Less than asked means that the client went away; TimeoutError, that it stood still."""
SEND_FILE: Final = "shardkeep.send_file"
"""`async (descriptor, offset, size_bytes, pool) -> None`: the body of a started response, from a file. ConnectionError
when the client went away."""
ABORT: Final = "shardkeep.abort_connection"
"""`() -> None`: ends the connection without an answer."""

_PATIENCE_MILLISECONDS: Final = 20
"""A client on a fast network takes more within this; going back to the loop costs as much as a megabyte."""
_MALFORMED: Final = json.dumps({
    "type": "about:blank",
    "title": "Bad Request",
    "status": 400,
    "detail": "this is not a valid HTTP/1.1 request",
    "code": ErrorCode.MALFORMED_REQUEST,
    "request_id": None,
    "retryable": False,
}).encode()  # fmt: skip


class ShardkeepProtocol(HttpToolsProtocol):
    """One connection."""

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (the base class's words are not for clients)
        """Answers what the parser refuses, then closes."""
        head = (
            f"HTTP/1.1 400 Bad Request\r\ncontent-type: {PROBLEM_CONTENT_TYPE}\r\n"
            f"content-length: {len(_MALFORMED)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + _MALFORMED)
        self.transport.close()

    def on_headers_complete(self) -> None:
        """Offers the extensions; the application runs only after this returns."""
        super().on_headers_complete()
        extensions: dict[str, Any] = {ABORT: self.transport.abort}
        if self.scheme == "http":
            extensions[RECEIVE_INTO] = partial(self._receive_into, self.cycle)
            extensions[SEND_FILE] = partial(_send_file, self.transport, self.cycle)
        self.scope["extensions"] = extensions

    async def _receive_into(self, cycle: RequestResponseCycle, out: memoryview, *, idle_timeout_seconds: float) -> int:
        if cycle.waiting_for_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        parsed, cycle.body = cycle.body, bytearray()
        out[: len(parsed)] = parsed
        if not cycle.more_body or cycle.disconnected or self.transport.is_closing():
            return len(parsed)
        rest = _BodyReceiver(self, out[len(parsed) :])
        self._hand_over(rest)
        try:
            await rest.wait(idle_timeout_seconds)
        finally:
            if rest.is_complete:
                self._take_back(cycle)
            else:
                self._give_up(cycle)
        return len(parsed) + rest.filled

    def _hand_over(self, receiver: _BodyReceiver) -> None:
        """Uvloop chooses how it reads when reading starts, so it is stopped around the change."""
        self.transport.pause_reading()
        self.transport.set_protocol(receiver)
        self.transport.resume_reading()
        self.flow.read_paused = False

    def _take_back(self, cycle: RequestResponseCycle) -> None:
        """The body ended exactly at the end of the buffer: the next byte begins a request, for a parser of its own."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        cycle.more_body = False
        cycle.message_event.clear()
        self.transport.set_protocol(self)
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _give_up(self, cycle: RequestResponseCycle) -> None:
        """Nobody reads the rest of this body: the connection ends with the answer."""
        cycle.keep_alive = False
        if not self.transport.is_closing():
            self.transport.pause_reading()


class _BodyReceiver(asyncio.BufferedProtocol):
    """Stands in for the HTTP protocol while the rest of a body arrives."""

    def __init__(self, connection: ShardkeepProtocol, out: memoryview) -> None:
        self._connection = connection
        self._out = out
        self._ended = asyncio.Event()
        self.filled = 0

    @property
    def is_complete(self) -> bool:
        return self.filled == len(self._out)

    async def wait(self, idle_timeout_seconds: float) -> None:
        """Until the body is complete or the client gone; TimeoutError when nothing came for that long."""
        while not self._ended.is_set():
            before = self.filled
            try:
                async with asyncio.timeout(idle_timeout_seconds):
                    await self._ended.wait()
            except TimeoutError:
                if self.filled == before:
                    raise

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (the interface of asyncio)
        return self._out[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        if self.is_complete:
            self._connection.transport.pause_reading()
            self._ended.set()

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
        self._ended.set()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


async def _send_file(
    transport: asyncio.Transport, cycle: RequestResponseCycle, descriptor: int, offset: int, size_bytes: int, pool: Any
) -> None:
    """Sends from threads of `pool`, none of which waits long for the client: a slow one is waited for on the loop."""
    loop = asyncio.get_running_loop()
    while transport.get_write_buffer_size() and not cycle.disconnected:  # noqa: ASYNC110  (nobody signals it)
        await asyncio.sleep(0.001)  # for the headers, which are in the kernel nearly always
    with _own_descriptor(transport) as socket:
        end = offset + size_bytes
        while offset < end and not cycle.disconnected and not transport.is_closing():
            sent = await loop.run_in_executor(pool, _send_some, socket, descriptor, offset, end - offset)
            offset += sent
            if offset < end:
                await _writable(loop, socket, transport)
    if offset < end:
        raise ConnectionResetError("the client went away")
    cycle.expected_content_length -= size_bytes


def _send_some(socket: int, descriptor: int, offset: int, size_bytes: int) -> int:
    """Sends until the client keeps us waiting; ConnectionError when it went away, EOFError when the file ends early."""
    done = 0
    poll = select.poll()
    poll.register(socket, select.POLLOUT)
    while done < size_bytes:
        try:
            count = os.sendfile(socket, descriptor, offset + done, size_bytes - done)
        except BlockingIOError:
            if not poll.poll(_PATIENCE_MILLISECONDS):
                break
            continue
        if not count:
            raise EOFError(f"the file ended {size_bytes - done} bytes early")
        done += count
    return done


async def _writable(loop: asyncio.AbstractEventLoop, socket: int, transport: asyncio.Transport) -> None:
    ready = asyncio.Event()
    loop.add_writer(socket, ready.set)
    try:
        while not transport.is_closing():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await ready.wait()
                    return
    finally:
        loop.remove_writer(socket)


@contextlib.contextmanager
def _own_descriptor(transport: asyncio.Transport) -> Iterator[int]:
    """The connection under a number of its own: the loop lets nobody watch the transport's."""
    duplicate = os.dup(transport.get_extra_info("socket").fileno())
    try:
        yield duplicate
    finally:
        os.close(duplicate)
