"""The ceiling: the same bytes by bare presigned requests, as many at a time, with nothing around them."""

from __future__ import annotations

import http.client
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

from shardkeep.format.chunks import chunk_ref
from shardkeep_service.blob_store.presigner import Presigner, SignedRequest

_LIFETIME_SECONDS = 900
_TIMEOUT_SECONDS = 300.0


class PresignedTransfers:
    """PUTs or GETs of `parts`. Names, checksums and signatures are made before the clock starts."""

    def __init__(self, presigner: Presigner, parts: Sequence[memoryview], *, threads: int) -> None:
        self._presigner = presigner
        self._parts = parts
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="bare")
        self._keys: list[str] = []

    def prepare_puts(self) -> Callable[[], None]:
        """What sends every part under a new key."""
        self._keys = [f"bare/{secrets.token_hex(16)}" for _ in self._parts]
        requests = [
            self._presigner.put(
                key, size_bytes=part.nbytes, crc64=chunk_ref([part]).crc64, lifetime_seconds=_LIFETIME_SECONDS
            )
            for key, part in zip(self._keys, self._parts, strict=True)
        ]
        return partial(self._run, _put, requests)

    def prepare_gets(self) -> Callable[[], None]:
        """What reads every part that was put last, into the memory it was put from."""
        return partial(
            self._run, _get, [self._presigner.get(key, lifetime_seconds=_LIFETIME_SECONDS) for key in self._keys]
        )

    def _run(self, transfer: Callable[[SignedRequest, memoryview], None], requests: Sequence[SignedRequest]) -> None:
        list(self._threads.map(transfer, requests, self._parts))


def _put(request: SignedRequest, part: memoryview) -> None:
    with _answer(request, part) as answer:
        answer.read()


def _get(request: SignedRequest, part: memoryview) -> None:
    with _answer(request, None) as answer:
        filled = 0
        while filled < part.nbytes:
            count = answer.readinto(part[filled:])
            if not count:
                raise SystemExit(f"the store's answer ended {part.nbytes - filled} bytes early")
            filled += count


def _answer(request: SignedRequest, body: memoryview | None) -> http.client.HTTPResponse:
    address = urlsplit(request.url)
    connection = http.client.HTTPConnection(address.netloc, timeout=_TIMEOUT_SECONDS)
    connection.request(request.method, f"{address.path}?{address.query}", body=body, headers=request.headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"the store answered a bare {request.method} with {answer.status}: {answer.read(500)!r}")
    return answer
