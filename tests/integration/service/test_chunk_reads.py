"""Reading chunks over HTTP: ranges, conditions, lengths, and what must not be read."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from shardkeep.protocol import routes
from tests.integration.service.process_client import (
    Payload,
    ProcessClient,
    chunk_path,
    committed_checkpoint,
    exchange,
    open_checkpoint,
    payload,
    put_chunk,
    read_answer,
)
from tests.service_process import ServiceProcess

ROWS = 200_000


@pytest.fixture(scope="module")
def stored(shared_service: ServiceProcess) -> tuple[str, Payload]:
    return committed_checkpoint(shared_service, run="reads", rows=ROWS)


def test_a_whole_chunk_comes_with_its_length_name_and_checksum(
    shared_service: ServiceProcess, stored: tuple[str, Payload]
) -> None:
    checkpoint, chunk = stored
    answer = exchange(shared_service, "GET", chunk_path(checkpoint, chunk.digest))
    assert (answer.status, answer.body) == (200, chunk.data)
    assert answer.headers["content-length"] == str(16 * ROWS)
    assert answer.headers["etag"] == f'"{chunk.digest}"'
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-type"] == routes.BINARY_CONTENT_TYPE
    assert answer.headers[routes.CRC64_HEADER] == f"{chunk.ref.crc64:016x}"


def test_head_has_the_headers_and_no_body(shared_service: ServiceProcess, stored: tuple[str, Payload]) -> None:
    checkpoint, chunk = stored
    answer = exchange(shared_service, "HEAD", chunk_path(checkpoint, chunk.digest))
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", str(16 * ROWS))
    partial = exchange(shared_service, "HEAD", chunk_path(checkpoint, chunk.digest), headers={"range": "bytes=0-9"})
    assert (partial.status, partial.headers["content-range"]) == (206, f"bytes 0-9/{16 * ROWS}")


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=1-", 1, 16 * ROWS),
        ("bytes=-7", 16 * ROWS - 7, 16 * ROWS),
        ("bytes=1048570-1048585", 1048570, 1048586),
        ("bytes=100-99999999", 100, 16 * ROWS),
    ],
)
def test_a_range_is_partial_content(
    shared_service: ServiceProcess, stored: tuple[str, Payload], header: str, start: int, end: int
) -> None:
    checkpoint, chunk = stored
    answer = exchange(shared_service, "GET", chunk_path(checkpoint, chunk.digest), headers={"range": header})
    assert (answer.status, answer.body) == (206, chunk.data[start:end])
    assert answer.headers["content-length"] == str(end - start)
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{16 * ROWS}"


@pytest.mark.parametrize("header", ["bytes=0-1,4-5", "bytes=x", "pages=1-2"])
def test_ranges_that_are_not_served_give_the_whole(
    shared_service: ServiceProcess, stored: tuple[str, Payload], header: str
) -> None:
    checkpoint, chunk = stored
    answer = exchange(shared_service, "GET", chunk_path(checkpoint, chunk.digest), headers={"range": header})
    assert (answer.status, answer.body) == (200, chunk.data)


def test_a_range_outside_is_416_with_the_size(shared_service: ServiceProcess, stored: tuple[str, Payload]) -> None:
    checkpoint, chunk = stored
    headers = {"range": f"bytes={16 * ROWS}-"}
    answer = exchange(shared_service, "GET", chunk_path(checkpoint, chunk.digest), headers=headers)
    assert answer.problem()["code"] == "range_not_satisfiable"
    assert answer.headers["content-range"] == f"bytes */{16 * ROWS}"


def test_if_range_with_another_name_gives_the_whole(
    shared_service: ServiceProcess, stored: tuple[str, Payload]
) -> None:
    checkpoint, chunk = stored
    target = chunk_path(checkpoint, chunk.digest)
    other = exchange(shared_service, "GET", target, headers={"range": "bytes=0-9", "if-range": '"other"'})
    same = exchange(shared_service, "GET", target, headers={"range": "bytes=0-9", "if-range": f'"{chunk.digest}"'})
    assert (other.status, same.status, same.body) == (200, 206, chunk.data[:10])


def test_E131_range_sizes_around_boundaries_are_exact(
    shared_service: ServiceProcess, stored: tuple[str, Payload]
) -> None:
    checkpoint, chunk = stored
    for boundary in (8, 1 << 16, 1 << 20):
        for size in (boundary - 8, boundary - 1, boundary, boundary + 1, boundary + 8):
            headers = {"range": f"bytes=8-{8 + size - 1}"}
            answer = exchange(shared_service, "GET", chunk_path(checkpoint, chunk.digest), headers=headers)
            expected = chunk.data[8 : 8 + size] if size else chunk.data
            assert answer.body == expected, size


def test_reads_follow_each_other_on_one_connection_and_a_slow_reader_gets_all(
    shared_service: ServiceProcess, stored: tuple[str, Payload]
) -> None:
    checkpoint, chunk = stored
    request = (
        f"GET {chunk_path(checkpoint, chunk.digest)} HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {shared_service.token}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", shared_service.port), timeout=60) as connection:
        for pause_seconds in (0.0, 0.3, 0.0):
            connection.sendall(request)
            time.sleep(pause_seconds)
            assert read_answer(connection, "GET").body == chunk.data


def test_a_reader_that_leaves_disturbs_nobody(shared_service: ServiceProcess, stored: tuple[str, Payload]) -> None:
    checkpoint, chunk = stored
    request = (
        f"GET {chunk_path(checkpoint, chunk.digest)} HTTP/1.1\r\nhost: x\r\n"
        f"authorization: Bearer {shared_service.token}\r\n\r\n"
    ).encode()
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", shared_service.port), timeout=60) as connection:
            connection.sendall(request)
            connection.recv(1000)
    assert exchange(shared_service, "GET", chunk_path(checkpoint, chunk.digest)).body == chunk.data
    assert "request_failed" not in shared_service.log


def test_chunks_of_an_open_checkpoint_cannot_be_read(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service, run="unread"), payload(10)
    assert put_chunk(shared_service, checkpoint, chunk).status == 201
    problem = exchange(shared_service, "GET", chunk_path(checkpoint, chunk.digest)).problem()
    assert (problem["code"], problem["status"]) == ("checkpoint_not_committed", 404)


def test_an_unknown_chunk_and_a_chunk_of_another_project_look_the_same(
    shared_service: ServiceProcess, stored: tuple[str, Payload]
) -> None:
    checkpoint, _ = stored
    _, foreign = committed_checkpoint(shared_service, project="foreign", run="reads", rows=9)
    for digest in ("0" * 64, foreign.digest):
        assert exchange(shared_service, "GET", chunk_path(checkpoint, digest)).problem()["code"] == "unknown_chunk"


def test_read_targets_come_in_the_order_asked(shared_service: ServiceProcess, stored: tuple[str, Payload]) -> None:
    checkpoint, chunk = stored
    client = ProcessClient(shared_service)
    path = routes.path(routes.READ_TARGETS, checkpoint=checkpoint)
    targets = client.ask("POST", path, {"digests": [chunk.digest, chunk.digest]})["targets"]
    assert [target["url"] for target in targets] == [chunk_path(checkpoint, chunk.digest)] * 2
    problem = client.refused("unknown_chunk", "POST", path, {"digests": [chunk.digest, "0" * 64]})
    assert problem["chunks"] == ["0" * 64]


def test_a_repeated_upload_after_the_commit_is_answered_and_new_chunks_are_not_taken(
    shared_service: ServiceProcess, stored: tuple[str, Payload]
) -> None:
    checkpoint, chunk = stored
    assert put_chunk(shared_service, checkpoint, chunk).status == 200
    assert put_chunk(shared_service, checkpoint, payload(10)).problem()["code"] == "checkpoint_not_open"


def object_of(service: ServiceProcess, chunk: Payload) -> list[Path]:
    found = (service.data_dir / "blobs" / "objects").rglob(f"{chunk.digest}.*")
    return sorted(found, key=lambda path: path.name)


def test_reported_damage_is_checked_quarantined_and_healed(service: ServiceProcess) -> None:
    checkpoint, chunk = committed_checkpoint(service, run="damaged")
    client = ProcessClient(service)
    damage = routes.path(routes.DAMAGE, checkpoint=checkpoint)
    latest = routes.path(routes.LATEST, project="project", run="damaged")

    def report() -> dict[str, list[str]]:
        return client.ask("POST", damage, {"digests": [chunk.digest]})

    assert report() == {"damaged": [], "whole": [chunk.digest], "pending": []}
    (stored,) = object_of(service, chunk)
    stored.chmod(0o600)
    stored.write_bytes(bytes([chunk.data[0] ^ 1]) + chunk.data[1:])
    assert client.ask("GET", latest)["checkpoint"]["id"] == checkpoint
    assert report() == report() == {"damaged": [chunk.digest], "whole": [], "pending": []}
    assert client.ask("GET", latest)["checkpoint"] is None
    assert exchange(service, "GET", chunk_path(checkpoint, chunk.digest)).problem()["code"] == "chunk_damaged"

    healing = open_checkpoint(service, run="healing")
    assert put_chunk(service, healing, chunk).status == 201
    assert [path.name for path in object_of(service, chunk)] == [f"{chunk.digest}.1", f"{chunk.digest}.2"]
    assert client.ask("GET", latest)["checkpoint"]["id"] == checkpoint
    assert exchange(service, "GET", chunk_path(checkpoint, chunk.digest)).body == chunk.data


def test_a_lost_object_is_damage(service: ServiceProcess) -> None:
    checkpoint, chunk = committed_checkpoint(service, run="lost")
    object_of(service, chunk)[0].unlink()
    assert exchange(service, "GET", chunk_path(checkpoint, chunk.digest)).status == 500
    path = routes.path(routes.DAMAGE, checkpoint=checkpoint)
    assert ProcessClient(service).ask("POST", path, {"digests": [chunk.digest]})["damaged"] == [chunk.digest]
