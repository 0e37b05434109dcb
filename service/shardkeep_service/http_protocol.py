"""The HTTP protocol of a connection: uvicorn's on httptools, with bulk bytes past the parser in both directions.

A large body costs uvicorn five copies and a task switch every 64 KiB. Here the kernel writes what remains of a body
straight into the buffer of whoever reads it (`receive_into`), and files go out by sendfile (`send_file`).

Both are ASGI extensions in the scope; without them (under another server) bodies take the ordinary way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from shardkeep.protocol.error_codes import MEANINGS, PROBLEM_CONTENT_TYPE, ErrorCode
from shardkeep.protocol.messages import Problem

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
_SCRAP_BYTES: Final = 4096
"""Where bytes go that still arrive for a body nobody reads any more."""
HEADER_SECONDS: Final = 30.0
HEADER_BYTES_LIMIT: Final = 64 * 1024


class ShardkeepProtocol(HttpToolsProtocol):
    """One connection. The headers of a request must be whole within `header_seconds`, however they trickle in."""

    header_seconds: float = HEADER_SECONDS
    _in_headers = True
    _header_bytes = 0
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection on which no request comes is given up too."""
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bounds the headers of a request, which the parser would take without end."""
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > HEADER_BYTES_LIMIT:
            detail = f"the headers have more than {HEADER_BYTES_LIMIT} bytes"
            self._refuse(ErrorCode.HEADERS_TOO_LARGE, detail)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  (the base class's words are not for clients)
        """Answers what the parser refuses, then closes."""
        self._refuse(ErrorCode.MALFORMED_REQUEST, "this is not a valid HTTP/1.1 request")

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        if self._header_timer is None:
            self._await_headers()

    def on_message_complete(self) -> None:
        """What comes next is another request."""
        super().on_message_complete()
        self._expect_request()

    def on_headers_complete(self) -> None:
        """Offers the extensions; the application runs only after this returns."""
        self._stop_waiting()
        self._in_headers = False
        super().on_headers_complete()
        extensions: dict[str, Any] = {ABORT: self.transport.abort}
        if self.scheme == "http":
            extensions[RECEIVE_INTO] = partial(self._receive_into, self.cycle)
            extensions[SEND_FILE] = partial(_send_file, self.transport, self.cycle)
        self.scope["extensions"] = extensions

    def _expect_request(self) -> None:
        self._in_headers, self._header_bytes = True, 0

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(self.header_seconds, self._headers_late)

    def _stop_waiting(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _headers_late(self) -> None:
        self._header_timer = None
        if self._header_bytes:
            detail = f"the headers were not complete after {self.header_seconds:g} s; send the request again"
            self._refuse(ErrorCode.IDLE_TIMEOUT, detail)
        else:
            self.transport.close()

    def _refuse(self, code: ErrorCode, detail: str) -> None:
        """Answers a request that never reached the application, and closes."""
        if self.transport.is_closing():
            return
        self._stop_waiting()
        meaning = MEANINGS[code]
        title = HTTPStatus(meaning.status).phrase
        problem = Problem(title=title, status=meaning.status, detail=detail, code=code, retryable=meaning.retryable)
        body = problem.model_dump_json().encode()
        head = (
            f"HTTP/1.1 {meaning.status} {title}\r\ncontent-type: {PROBLEM_CONTENT_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

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
            filled = rest.let_go()
        return len(parsed) + filled

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
        self._expect_request()
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


def protocol_with(*, header_seconds: float) -> type[ShardkeepProtocol]:
    """The protocol with this bound."""
    return type("ConfiguredProtocol", (ShardkeepProtocol,), {"header_seconds": header_seconds})


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

    def let_go(self) -> int:
        """Ends the use of the buffer, which may be lent to others from now on; gives how much of it was filled.

        uvloop refers to a connection's last receiver as long as the connection lives, so this must not keep the memory.
        """
        filled, self.filled = self.filled, 0
        self._out = memoryview(bytearray(_SCRAP_BYTES))
        return filled

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
