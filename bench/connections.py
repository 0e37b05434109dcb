"""The cheapest HTTP client that is still correct: many keep-alive connections of simulated ranks in one event loop."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

_BUSY = 503
_BUSY_SECONDS = 0.5
_TRIES = 60


@dataclass(slots=True)
class Traffic:
    """What went over all connections."""

    requests: int = 0
    busy_answers: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(slots=True)
class Connection:
    """One rank's connection; one request at a time."""

    port: int
    token: str
    traffic: Traffic
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = field(default=None, init=False)

    async def ask(
        self, method: str, path: str, body: bytes = b"", *, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """The JSON answer."""
        answer: dict[str, Any] = json.loads(await self.send(method, path, body, content_type=content_type))
        return answer

    async def send(
        self, method: str, path: str, body: bytes = b"", *, content_type: str = "application/octet-stream"
    ) -> bytes:
        """The body of the 2xx answer; `busy` is asked again, anything else ends the benchmark."""
        for _ in range(_TRIES):
            status, answer = await self._exchange(method, path, body, content_type)
            if status < 300:
                return answer
            if status != _BUSY:
                raise SystemExit(f"{method} {path} was answered {status}: {answer[:500].decode()}")
            self.traffic.busy_answers += 1
            await asyncio.sleep(_BUSY_SECONDS)
        raise SystemExit(f"{method} {path} was answered {_BUSY} for {_TRIES * _BUSY_SECONDS:.0f} s")

    def close(self) -> None:
        """Drops the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {self.token}\r\n"
            f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        writer.writelines((head, body))
        await writer.drain()
        received = await reader.readuntil(b"\r\n\r\n")
        status, length = _parsed_head(received)
        answer = await reader.readexactly(length)
        self.traffic.requests += 1
        self.traffic.sent_bytes += len(head) + len(body)
        self.traffic.received_bytes += len(received) + length
        return status, answer


def _parsed_head(head: bytes) -> tuple[int, int]:
    """Status and content length."""
    lines = head.decode("latin-1").split("\r\n")
    lengths = [line[15:] for line in lines if line[:15].lower() == "content-length:"]
    return int(lines[0].split()[1]), int(lengths[0])
