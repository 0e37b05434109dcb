"""Reading a byte range of a chunk straight into its destinations, whatever the connection does meanwhile.

A read ends with exactly the bytes asked for or with an error: the answer's Content-Range, length and validator are
checked, and what is missing is asked for again from where the bytes stopped.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import urllib3

from shardkeep.connection.retries import RetryPolicy
from shardkeep.connection.transport import HttpRequest, Refusal, Transport
from shardkeep.errors import ConnectionFailed, IntegrityError
from shardkeep.format.segments import ChunkRef
from shardkeep.protocol.messages import Target

_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
READ_STEP_BYTES: Final = 1 << 20
"""Progress is known in steps of this: what a broken connection can lose."""
_SKIP_BYTES: Final = 256 * 1024


class ScatterSink:
    """Destinations filled one after another."""

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self._parts = [part.cast("B") for part in parts if part.nbytes]
        self.size_bytes = sum(part.nbytes for part in self._parts)
        self.restart()

    def restart(self) -> None:
        """Forget what was filled."""
        self._part = 0
        self._within = 0
        self.position = 0

    @property
    def is_full(self) -> bool:
        """Whether everything has arrived."""
        return self.position == self.size_bytes

    def next_view(self) -> memoryview:
        """Where the next bytes go: at most READ_STEP_BYTES, inside one part."""
        return self._parts[self._part][self._within : self._within + READ_STEP_BYTES]

    def advance(self, size_bytes: int) -> None:
        """Count bytes written into `next_view()`."""
        self._within += size_bytes
        self.position += size_bytes
        if self._within == self._parts[self._part].nbytes:
            self._part += 1
            self._within = 0


@dataclass(slots=True)
class _RangeRead:
    """One range read and what its tries learned so far."""

    target: Target
    chunk: ChunkRef
    offset: int
    sink: ScatterSink
    validator: str | None
    ranged: bool = True

    @property
    def wanted(self) -> int:
        """The next stored byte needed."""
        return self.offset + self.sink.position

    @property
    def on_service(self) -> bool:
        return self.target.url.startswith("/")

    def request(self) -> HttpRequest:
        headers = dict(self.target.headers)
        if self.ranged:
            headers["range"] = f"bytes={self.wanted}-{self.offset + self.sink.size_bytes - 1}"
            if self.validator and self.sink.position:
                headers["if-range"] = self.validator
        return HttpRequest("GET", self.target.url, headers=headers)

    def refuse(self, what: str) -> Refusal:
        """The answer is not what was asked: ask for the whole chunk next, and give up if that fails too."""
        if not self.ranged:
            raise IntegrityError(f"chunk {self.chunk.digest}: {what}, also when asked for the whole chunk")
        self.ranged = False
        return Refusal(ConnectionFailed(f"chunk {self.chunk.digest}: {what}"))


def read_range(
    transport: Transport,
    target: Target,
    chunk: ChunkRef,
    offset: int,
    parts: Sequence[memoryview],
    *,
    policy: RetryPolicy | None = None,
) -> None:
    """Fill `parts` with the stored bytes of `chunk` from `offset` on; IntegrityError if the store has other bytes."""
    sink = ScatterSink(parts)
    read = _RangeRead(target, chunk, offset, sink, validator=None)
    if read.on_service:
        read.validator = f'"{chunk.digest}"'
    retries = transport.retries(policy)
    request_id = secrets.token_hex(8)
    while not sink.is_full:
        before = sink.position
        try:
            with transport.exchange(read.request(), request_id=f"{request_id}.{retries.tries}") as response:
                _receive(read, response)
        except Refusal as refusal:
            refused = refusal
        else:
            return
        if sink.position > before:
            retries.progressed()
        retries.pause_after(refused.error, retry_after_seconds=refused.retry_after)


def _receive(read: _RangeRead, response: urllib3.BaseHTTPResponse) -> None:
    headers = {name.lower(): value for name, value in response.headers.items()}
    if response.status == 416:
        raise read.refuse("the store says that the range is outside of it")
    if headers.get("content-encoding", "identity") != "identity":
        raise read.refuse(f"the store answered with content-encoding {headers['content-encoding']}")
    _check_validator(read, headers)
    start = _start_of(read, response.status, headers)
    _skip(response, read.wanted - start)
    while not read.sink.is_full:
        size_bytes = read_into(response, read.sink.next_view())
        if not size_bytes:
            raise Refusal(ConnectionFailed(f"chunk {read.chunk.digest}: the connection closed at byte {read.wanted}"))
        read.sink.advance(size_bytes)


def _check_validator(read: _RangeRead, headers: Mapping[str, str]) -> None:
    etag = headers.get("etag")
    if etag is None or etag.startswith("W/"):
        return
    if read.validator is None or etag == read.validator:
        read.validator = etag
        return
    if read.on_service:
        raise IntegrityError(f"chunk {read.chunk.digest}: the service answered with another object, {etag}")
    read.validator = etag
    read.sink.restart()
    raise Refusal(ConnectionFailed(f"chunk {read.chunk.digest}: the stored object changed while it was read"))


def _start_of(read: _RangeRead, status: int, headers: Mapping[str, str]) -> int:
    """The stored byte that the body starts with; Refusal if that is not usable."""
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if match is None:
        length = headers.get("content-length")
        if status != 200 or (length is not None and int(length) != read.chunk.size_bytes):
            raise read.refuse(f"the store answered {status} with {length} bytes and no Content-Range")
        return 0
    start, last, total = int(match[1]), int(match[2]), match[3]
    if total != "*" and int(total) != read.chunk.size_bytes:
        raise IntegrityError(f"chunk {read.chunk.digest} has {total} bytes in the store, not {read.chunk.size_bytes}")
    if not start <= read.wanted <= last:
        raise read.refuse(f"asked for byte {read.wanted} on, the store sent bytes {start}-{last}")
    return start


def _skip(response: urllib3.BaseHTTPResponse, size_bytes: int) -> None:
    scratch = memoryview(bytearray(min(size_bytes, _SKIP_BYTES)))
    while size_bytes:
        skipped = read_into(response, scratch[:size_bytes])
        if not skipped:
            raise Refusal(ConnectionFailed("the connection closed before the bytes asked for"))
        size_bytes -= skipped


def read_into(response: urllib3.BaseHTTPResponse, out: memoryview) -> int:
    """Read body bytes into `out` without a copy; 0 at the end of the body.

    urllib3's own `readinto` copies through bytes, at three times the CPU; the answer it wraps is http.client's.
    """
    source = response._fp  # type: ignore[attr-defined]  # noqa: SLF001 - see the docstring
    return int(source.readinto(out))
