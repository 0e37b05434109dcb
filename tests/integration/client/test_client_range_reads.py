"""Range reads of chunks through a proxy that does to them what networks and stores have been seen to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import IntegrityError
from shardkeep.format.segments import ChunkRef
from shardkeep.protocol.messages import Target
from tests.faulty_proxy import Exchange, FaultyProxy, Reply
from tests.service_process import ServiceProcess

SIZE = 5 << 20
CHUNK = r"GET /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"


@dataclass
class Stored:
    """One chunk of known bytes behind a proxy."""

    proxy: FaultyProxy
    service: ServiceClient
    chunk: ChunkRef
    target: Target
    content: bytes

    def read(self, start: int, stop: int) -> bytes:
        out = bytearray(stop - start)
        self.service.read_range_into(self.target, self.chunk, start, [memoryview(out)])
        return bytes(out)

    def check(self, start: int = 1_000_000, stop: int = 4_500_000) -> None:
        assert self.read(start, stop) == self.content[start:stop]


@pytest.fixture
def stored(shared_service: ServiceProcess, request: pytest.FixtureRequest) -> Iterator[Stored]:
    content = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token, codec="raw") as client:
        run = client.run(f"ranges/{abs(hash(request.node.name))}")
        checkpoint = run.save(1, {"bytes": content}).wait(60)
        (chunk,) = checkpoint.manifest().chunks()
        (target,) = client.service.read_targets(checkpoint.id, [chunk.digest], direct=True)
        yield Stored(proxy, client.service, chunk, target, content.tobytes())


def test_a_range_is_read_exactly(stored: Stored) -> None:
    stored.check()
    stored.check(0, SIZE)
    stored.check(SIZE - 1, SIZE)
    assert stored.proxy.count(CHUNK) == 3


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_E159_a_body_that_ends_early_is_resumed_from_where_it_stopped(stored: Stored, framing: str) -> None:
    stored.proxy.fail(CHUNK, Reply(cut_after=int(3_500_000 * 0.8), framing=framing), times=2)
    stored.check()
    ranges = [item.headers["range"] for item in stored.proxy.exchanges if "range" in item.headers]
    starts = [int(value.removeprefix("bytes=").split("-")[0]) for value in ranges]
    assert starts[0] == 1_000_000
    assert starts[1] >= 1_000_000 + 2 * (1 << 20)
    assert starts == sorted(starts)


def test_E161_the_whole_body_with_200_is_skipped_into(stored: Stored) -> None:
    stored.proxy.fail(CHUNK, lambda _: Reply(status=200, headers={}, body=stored.content))
    stored.check()


def test_E161_a_part_with_200_and_content_range_is_taken_as_the_part(stored: Stored) -> None:
    stored.proxy.fail(CHUNK, Reply(status=200))
    stored.check()
    assert stored.proxy.count(CHUNK) == 1


@pytest.mark.parametrize("start", [999_000, 1_000_100])
def test_E161_a_part_from_another_start_is_never_taken_as_the_one_asked_for(stored: Stored, start: int) -> None:
    def shifted(_: Exchange) -> Reply:
        headers = {"content-range": f"bytes {start}-{SIZE - 1}/{SIZE}"}
        return Reply(status=206, headers=headers, body=stored.content[start:])

    stored.proxy.fail(CHUNK, shifted)
    stored.check()


def test_E161_a_part_without_content_range_is_not_trusted(stored: Stored) -> None:
    stored.proxy.fail(CHUNK, lambda exchange: Reply(status=206, headers={}, body=exchange.answer))
    stored.check()
    assert stored.proxy.count(CHUNK) == 2


def test_E161_after_416_the_whole_chunk_is_asked_for(stored: Stored) -> None:
    stored.proxy.fail(CHUNK, Reply(status=416, headers={}, body=b""))
    stored.check()


def test_E161_a_store_that_keeps_refusing_the_range_is_an_error(stored: Stored) -> None:
    stored.proxy.fail(CHUNK, Reply(status=416, headers={}, body=b""), times=99)
    with pytest.raises(IntegrityError, match="outside"):
        stored.check()


def test_E162_an_object_changed_between_two_halves_is_an_error_and_never_a_mix(stored: Stored) -> None:
    stored.proxy.fail(CHUNK, Reply(cut_after=1 << 20))
    other = bytes(SIZE)

    def replaced(exchange: Exchange) -> Reply:
        start = int(exchange.headers["range"].removeprefix("bytes=").split("-")[0])
        headers = {"etag": '"another"', "content-range": f"bytes {start}-{SIZE - 1}/{SIZE}"}
        return Reply(status=206, headers=headers, body=other[start:])

    stored.proxy.fail(CHUNK, replaced)
    with pytest.raises(IntegrityError, match="another object"):
        stored.check()


def test_E162_the_second_half_carries_if_range(stored: Stored) -> None:
    stored.proxy.fail(CHUNK, Reply(cut_after=1 << 20))
    stored.check()
    assert stored.proxy.exchanges[-1].headers["if-range"] == f'"{stored.chunk.digest}"'


def test_E162_elsewhere_a_changed_object_is_read_again_from_the_start(stored: Stored) -> None:
    elsewhere = Target(method="GET", url=stored.proxy.url + stored.target.url)
    versions = iter(['"one"', '"two"', '"two"'])

    def versioned(exchange: Exchange) -> Reply:
        start, stop = (int(part) for part in exchange.headers["range"].removeprefix("bytes=").split("-"))
        version = next(versions)
        content = bytes(SIZE) if version == '"one"' else stored.content
        headers = {"etag": version, "content-range": f"bytes {start}-{stop}/{SIZE}"}
        cut = 1 << 20 if version == '"one"' else None
        return Reply(status=206, headers=headers, body=content[start : stop + 1], cut_after=cut)

    stored.proxy.fail(CHUNK, versioned, times=9)
    out = bytearray(3_000_000)
    stored.service.read_range_into(elsewhere, stored.chunk, 500_000, [memoryview(out)])
    assert bytes(out) == stored.content[500_000:3_500_000]


def test_a_target_elsewhere_never_gets_the_token(stored: Stored) -> None:
    elsewhere = Target(method="GET", url=stored.proxy.url + stored.target.url)
    stored.proxy.fail(CHUNK, lambda _: Reply(status=200, headers={}, body=stored.content))
    stored.service.read_range_into(elsewhere, stored.chunk, 0, [memoryview(bytearray(100))])
    assert "authorization" not in stored.proxy.exchanges[-1].headers
