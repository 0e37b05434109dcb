"""Uploads over real sockets: whatever goes wrong on the way, nothing wrong is stored and the service goes on."""

from __future__ import annotations

import resource
import socket
import threading
import time
from pathlib import Path

import pytest

from shardkeep.protocol import routes
from tests.integration.service.process_client import (
    Payload,
    ProcessClient,
    chunk_path,
    exchange,
    held_bytes,
    is_stored,
    open_checkpoint,
    payload,
    put_chunk,
    read_answer,
    started_upload,
)
from tests.service_process import ServiceProcess
from tests.waiting import wait_until

MEBIBYTE = 1 << 20


def objects(service: ServiceProcess) -> set[Path]:
    """Stored chunk objects and half-written files."""
    blobs = service.data_dir / "blobs"
    return {
        path for path in blobs.rglob("*") if path.is_file() and ("chunks" in path.parts or "incoming" in path.parts)
    }


def settled_objects(service: ServiceProcess) -> set[Path]:
    """The stored ones, once none is half-written: the service may take a moment to learn that a connection was cut."""
    wait_until(lambda: not any("incoming" in path.parts for path in objects(service)))
    return {path for path in objects(service) if "incoming" not in path.parts}


@pytest.mark.parametrize("size", [1, 4096, MEBIBYTE - 1, MEBIBYTE, 3 * MEBIBYTE + 5, 33 * MEBIBYTE])
def test_a_chunk_is_new_once_and_present_afterwards(shared_service: ServiceProcess, size: int) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(size)
    assert not is_stored(shared_service, checkpoint, chunk)
    assert put_chunk(shared_service, checkpoint, chunk).status == 201
    assert put_chunk(shared_service, checkpoint, chunk).status == 200
    assert is_stored(shared_service, checkpoint, chunk)


def test_many_chunks_and_other_requests_share_one_connection(shared_service: ServiceProcess) -> None:
    """After a body that bypassed the parser, the next request on the connection is parsed from its first byte."""
    checkpoint = open_checkpoint(shared_service)
    chunks = [payload(size) for size in (2 * MEBIBYTE, 10, 5 * MEBIBYTE, MEBIBYTE, 1)]
    with socket.create_connection(("127.0.0.1", shared_service.port), timeout=60) as connection:
        for chunk in chunks:
            head = (
                f"PUT {chunk_path(checkpoint, chunk.digest)} HTTP/1.1\r\nhost: x\r\n"
                f"authorization: Bearer {shared_service.token}\r\n{routes.CRC64_HEADER}: {chunk.ref.crc64:016x}\r\n"
                f"content-length: {len(chunk.data)}\r\n\r\n"
            )
            connection.sendall(head.encode() + chunk.data)
            assert read_answer(connection).status == 201
            connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            assert read_answer(connection, "GET").status == 200


def test_pipelined_requests_behind_a_body_are_answered_in_order(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(2 * MEBIBYTE)
    with started_upload(shared_service, checkpoint, chunk, sent_bytes=len(chunk.data)) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /nowhere HTTP/1.1\r\nhost: x\r\n\r\n")
        stream = connection.makefile("rb")
        text = b""
        while b"no_such_route" not in text:
            text += stream.read1(65536)
    assert text.index(b" 201 ") < text.index(b" 200 ") < text.index(b" 404 ")


def test_a_client_that_waits_for_continue_is_told_to_go_on(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(2 * MEBIBYTE)
    head = (
        f"PUT {chunk_path(checkpoint, chunk.digest)} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
        f"authorization: Bearer {shared_service.token}\r\n{routes.CRC64_HEADER}: {chunk.ref.crc64:016x}\r\n"
        f"content-length: {len(chunk.data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", shared_service.port), timeout=60) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(chunk.data)
        assert read_answer(connection).status == 201


@pytest.mark.parametrize("sent", [0, 1, 100_000, 2 * MEBIBYTE - 1])
@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_upload_stores_nothing_and_can_be_repeated(
    shared_service: ServiceProcess, sent: int, *, reset: bool
) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(2 * MEBIBYTE)
    before = settled_objects(shared_service)
    with started_upload(shared_service, checkpoint, chunk, sent_bytes=sent) as connection:
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        time.sleep(0.02)
    assert not is_stored(shared_service, checkpoint, chunk)
    assert settled_objects(shared_service) == before
    assert put_chunk(shared_service, checkpoint, chunk).status == 201


@pytest.mark.parametrize("damaged_at", [0, -1])
@pytest.mark.parametrize("size", [1000, 2 * MEBIBYTE])
def test_a_flipped_bit_on_the_way_is_noticed_and_may_be_sent_again(
    shared_service: ServiceProcess, damaged_at: int, size: int
) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(size)
    damaged = bytearray(chunk.data)
    damaged[damaged_at] ^= 1
    problem = put_chunk(shared_service, checkpoint, chunk, body=bytes(damaged)).problem()
    assert (problem["code"], problem["status"], problem["retryable"]) == ("checksum_mismatch", 400, True)
    assert not is_stored(shared_service, checkpoint, chunk)
    assert put_chunk(shared_service, checkpoint, chunk).status == 201


def test_bytes_with_the_right_checksum_and_another_name_are_refused(shared_service: ServiceProcess) -> None:
    checkpoint, chunk, other = open_checkpoint(shared_service), payload(1000), payload(1000)
    problem = put_chunk(shared_service, checkpoint, chunk, body=other.data, headers=other.headers).problem()
    assert problem["code"] == "digest_mismatch"
    assert not is_stored(shared_service, checkpoint, chunk)
    assert not is_stored(shared_service, checkpoint, other)


def test_damage_is_noticed_also_when_the_chunk_is_present(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(1000)
    assert put_chunk(shared_service, checkpoint, chunk).status == 201
    assert put_chunk(shared_service, checkpoint, chunk, body=bytes(1000)).problem()["code"] == "checksum_mismatch"


def test_a_body_without_its_length_is_refused(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(10)
    answer = put_chunk(
        shared_service,
        checkpoint,
        chunk,
        body=b"a\r\n0123456789\r\n0\r\n\r\n",
        headers={"transfer-encoding": "chunked"},
    )
    assert answer.problem()["code"] == "length_required"


def test_a_chunk_above_the_limit_is_refused_before_it_is_read(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(10)
    problem = put_chunk(
        shared_service, checkpoint, chunk, body=b"", headers={"content-length": str(257 * MEBIBYTE)}
    ).problem()
    assert (problem["code"], problem["status"]) == ("body_too_large", 413)


@pytest.mark.parametrize("value", [None, "", "12", "G" * 16, "A" * 16, "0" * 17])
def test_a_missing_or_malformed_checksum_is_refused(shared_service: ServiceProcess, value: str | None) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(10)
    headers = {} if value is None else {routes.CRC64_HEADER: value}
    answer = exchange(shared_service, "PUT", chunk_path(checkpoint, chunk.digest), body=chunk.data, headers=headers)
    assert answer.problem()["code"] == "malformed_request"


def test_concurrent_uploads_of_one_digest_all_succeed_with_one_row(shared_service: ServiceProcess) -> None:
    checkpoints = [open_checkpoint(shared_service, run=f"concurrent-{number}") for number in range(2)]
    chunk = payload(MEBIBYTE)
    statuses: list[int] = []

    def upload(checkpoint: str) -> None:
        statuses.append(put_chunk(shared_service, checkpoint, chunk).status)

    threads = [threading.Thread(target=upload, args=(checkpoints[number % 2],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 7 + [201]
    assert all(is_stored(shared_service, checkpoint, chunk) for checkpoint in checkpoints)


def test_another_project_does_not_see_the_chunk(shared_service: ServiceProcess) -> None:
    mine, theirs = open_checkpoint(shared_service), open_checkpoint(shared_service, project="other")
    chunk = payload(1000)
    assert put_chunk(shared_service, mine, chunk).status == 201
    assert not is_stored(shared_service, theirs, chunk)
    assert put_chunk(shared_service, theirs, chunk).status == 201


def test_an_aborted_checkpoint_takes_no_chunk(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(10)
    path = routes.path(routes.ABORT, checkpoint=checkpoint)
    ProcessClient(shared_service).ask("POST", path, {"rank": 0, "reason": "test"})
    assert put_chunk(shared_service, checkpoint, chunk).problem()["code"] == "checkpoint_aborted"


def test_a_fenced_attempt_stores_nothing(shared_service: ServiceProcess) -> None:
    old = open_checkpoint(shared_service, run="fenced")
    open_checkpoint(shared_service, run="fenced")
    problem = put_chunk(shared_service, old, payload(10)).problem()
    assert problem["code"] in ("attempt_fenced", "checkpoint_aborted")
    assert problem["status"] == 409


def test_an_upload_that_stands_still_is_ended(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "s", env={"SHARDKEEP_SERVICE_IDLE_TIMEOUT_SECONDS": "6"}) as service:
        checkpoint, chunk = open_checkpoint(service), payload(2 * MEBIBYTE)
        with started_upload(service, checkpoint, chunk, sent_bytes=MEBIBYTE) as connection:
            answer = read_answer(connection)
            assert (answer.problem()["code"], answer.status) == ("idle_timeout", 408)
            assert answer.headers["connection"] == "close"
        with started_upload(service, checkpoint, chunk, sent_bytes=0) as connection:
            for start in range(0, len(chunk.data), MEBIBYTE // 4):  # for longer than it may stand still, all together
                connection.sendall(chunk.data[start : start + MEBIBYTE // 4])
                time.sleep(0.8)
            assert read_answer(connection).status == 201


def test_uploads_beyond_the_budget_wait_and_then_are_told_to_come_back(tmp_path: Path) -> None:
    env = {"SHARDKEEP_SERVICE_UPLOAD_BUDGET_BYTES": str(3 * MEBIBYTE), "SHARDKEEP_SERVICE_UPLOAD_WAIT_SECONDS": "0.2"}
    with ServiceProcess(tmp_path / "s", env=env) as service:
        checkpoint, first, second = open_checkpoint(service), payload(2 * MEBIBYTE), payload(2 * MEBIBYTE)
        with started_upload(service, checkpoint, first, sent_bytes=10) as connection:
            wait_until(lambda: held_bytes(service) >= len(first.data))
            answer = put_chunk(service, checkpoint, second)
            problem = answer.problem()
            assert (problem["code"], problem["retryable"], answer.status) == ("busy", True, 503)
            assert int(answer.headers["retry-after"]) >= 1
            connection.sendall(first.data[10:])
            assert read_answer(connection).status == 201
        wait_until(lambda: not held_bytes(service))
        assert put_chunk(service, checkpoint, second).status == 201


def test_a_full_disk_is_storage_full_and_the_service_lives_on(tmp_path: Path) -> None:
    """The service is given a file size limit, which the kernel enforces on its writes as it does a full disk."""
    with ServiceProcess(tmp_path / "s") as service:
        checkpoint, large, small = open_checkpoint(service), payload(4 * MEBIBYTE), payload(MEBIBYTE)
        limit_file_size(service.pid, 3 * MEBIBYTE)
        problem = put_chunk(service, checkpoint, large).problem()
        assert (problem["code"], problem["status"]) == ("storage_full", 507)
        assert not is_stored(service, checkpoint, large)
        assert put_chunk(service, checkpoint, small).status == 201
        limit_file_size(service.pid, -1)
        assert put_chunk(service, checkpoint, large).status == 201
        assert service.is_ready()


def limit_file_size(pid: int, size_bytes: int) -> None:
    """Sets the soft limit of a running process; -1 lifts it."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, -1))


def test_a_crash_after_storing_and_before_answering_loses_and_doubles_nothing(tmp_path: Path) -> None:
    fault = f"kill:PUT {routes.CHUNK}:1:after"
    with ServiceProcess(tmp_path / "s", env={"SHARDKEEP_SERVICE_FAULT": fault}) as service:
        checkpoint, chunk = open_checkpoint(service), payload(MEBIBYTE)
        with pytest.raises((OSError, EOFError)):
            put_chunk(service, checkpoint, chunk)
        assert service.wait_exit() == -9
        service.env.clear()
        service.start()
        assert is_stored(service, checkpoint, chunk)
        assert put_chunk(service, checkpoint, chunk).status == 200
        assert len(objects(service)) == 1


def test_a_dropped_answer_is_an_ended_connection(tmp_path: Path) -> None:
    fault = f"drop:PUT {routes.CHUNK}:2:before"
    with ServiceProcess(tmp_path / "s", env={"SHARDKEEP_SERVICE_FAULT": fault}) as service:
        checkpoint = open_checkpoint(service)
        chunks: list[Payload] = [payload(100) for _ in range(3)]
        assert put_chunk(service, checkpoint, chunks[0]).status == 201
        with pytest.raises((OSError, EOFError)):
            put_chunk(service, checkpoint, chunks[1])
        assert not is_stored(service, checkpoint, chunks[1])
        assert put_chunk(service, checkpoint, chunks[2]).status == 201
