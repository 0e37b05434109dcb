"""Requests that are wrong in themselves: who asks, for what, and with which bytes."""

from __future__ import annotations

import socket
import time

import pytest

import shardkeep as sk
from shardkeep.errors import NotFound, Unauthenticated
from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.service import create_token
from shardkeep_service.database.database import Database
from tests.failures.bad_input.kept_checkpoint import Kept, assert_says
from tests.integration.service.process_client import (
    ProcessClient,
    chunk_path,
    exchange,
    is_stored,
    new_token,
    payload,
    put_chunk,
    read_answer,
    started_upload,
)
from tests.service_process import ServiceProcess

OTHER_TOKEN = "shardkeep_" + "A" * 43


def expired_token(service: ServiceProcess) -> str:
    database = Database(f"sqlite:///{service.data_dir / 'shardkeep.db'}")
    with database.write() as session:
        now = database.now(session)
        _, text = create_token(session, now=now, scope=Scope.ADMIN, name="old", expires_at=now - 1)
    database.close()
    return text


@pytest.mark.parametrize("kind", ["wrong", "expired", "damaged"])
def test_a_wrong_or_expired_token(kept: Kept, kind: str) -> None:
    token = {
        "wrong": OTHER_TOKEN,
        "expired": expired_token(kept.service),
        "damaged": kept.service.token[:-1] + ("a" if kept.service.token[-1] != "a" else "b"),
    }[kind]
    with sk.connect(kept.service.url, token) as stranger:
        run = kept.other_run_object(stranger)
        for attempt_it in (run.latest, run.resume, lambda: run.save(11, {"epoch": 4}), lambda: list(run.checkpoints())):
            started = time.monotonic()
            with pytest.raises(Unauthenticated) as caught:
                attempt_it()
            assert time.monotonic() - started < 60, "a token does not become right by asking again"
            code = "token_expired" if kind == "expired" else "token_invalid"
            assert_says(caught.value, code, "ask an administrator for a new one")


def test_an_unknown_project(kept: Kept) -> None:
    with sk.connect(kept.service.url, new_token(kept.service, "write")) as writer:
        with pytest.raises(NotFound) as caught:
            writer.run("nowhere/run").save(1, {"epoch": 1})
        assert_says(caught.value, "unknown_project", "create it with an admin token|check its name")
        with pytest.raises(NotFound) as caught:
            writer.run("nowhere/run").resume()
        assert_says(caught.value, "unknown_project", "create it with an admin token|check its name")
    with pytest.raises(NotFound):
        list(kept.client.runs("nowhere"))


def open_one(kept: Kept) -> str:
    training = kept.training()
    return training.open_all(training.start(1), save=1, step=11, world_size=1)


def test_a_chunk_whose_bytes_do_not_match(kept: Kept) -> None:
    checkpoint, chunk, other = open_one(kept), payload(50_000), payload(50_000)
    for headers, code in (({}, "checksum_mismatch"), (other.headers, "digest_mismatch")):
        problem = put_chunk(kept.service, checkpoint, chunk, body=other.data, headers=headers).problem()
        assert_says(problem, code, "nothing was stored, send it again")
        assert problem["retryable"]
    assert not is_stored(kept.service, checkpoint, chunk)
    assert not is_stored(kept.service, checkpoint, other)


@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_a_body_shorter_than_declared(kept: Kept, size: int) -> None:
    checkpoint, chunk = open_one(kept), payload(size)
    with started_upload(kept.service, checkpoint, chunk, sent_bytes=size - 1) as connection:
        connection.shutdown(socket.SHUT_WR)
        answered = connection.makefile("rb").read()
    if answered:  # a client that has stopped sending may still listen
        assert b"body_length_mismatch" in answered
        assert b"send it again" in answered
    assert not is_stored(kept.service, checkpoint, chunk)
    assert put_chunk(kept.service, checkpoint, chunk).status == 201


@pytest.mark.parametrize("size", [1000, 3 << 20])
def test_a_body_longer_than_declared(kept: Kept, size: int) -> None:
    """What follows the declared bytes is no request: it ends the connection, perhaps before the answer to the first."""
    checkpoint, chunk = open_one(kept), payload(size)
    with started_upload(kept.service, checkpoint, chunk, sent_bytes=size) as connection:
        connection.sendall(b"\xff" * 1000 + b"\r\n\r\n")
        answer = read_answer(connection)
        assert answer.status == 201 or answer.problem()["code"] == "malformed_request"
    shorter = put_chunk(
        kept.service, checkpoint, payload(size), body=chunk.data[:-1], headers={"content-length": str(size - 1)}
    )
    assert_says(shorter.problem(), "checksum_mismatch", "send it again")
    answer = exchange(
        kept.service, "PUT", chunk_path(checkpoint, chunk.digest), body=chunk.data + b"x", headers=chunk.headers
    )
    assert_says(answer.problem(), "checksum_mismatch", "send it again")


def test_a_chunk_of_another_size_than_offered(kept: Kept) -> None:
    checkpoint, chunk = open_one(kept), payload(1000)
    assert put_chunk(kept.service, checkpoint, chunk).status == 201
    offer = {"digest": chunk.digest, "size": 999, "crc64": chunk.ref.crc64}
    path = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
    problem = ProcessClient(kept.service).refused("malformed_request", "POST", path, {"rank": 0, "chunks": [offer]})
    assert_says(problem, "malformed_request", "the offer is wrong")
