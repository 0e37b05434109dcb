"""Deduplication never crosses projects: no answer tells one project what another has."""

from __future__ import annotations

from typing import Any

from shardkeep.protocol import routes
from tests.integration.service.process_client import (
    Payload,
    ProcessClient,
    RawAnswer,
    chunk_path,
    committed_checkpoint,
    exchange,
    new_token,
    open_checkpoint,
    payload,
    put_chunk,
)
from tests.service_process import ServiceProcess

VARYING = {"date", "x-request-id", "traceparent", "etag"}


def answers_about(service: ServiceProcess, token: str, checkpoint: str, readable: str, chunk: Payload) -> list[Any]:
    """What each route says of a chunk, without what differs from request to request or is the digest itself."""
    client = ProcessClient(service, token=token)
    offer = {"digest": chunk.digest, "size": len(chunk.data), "crc64": chunk.ref.crc64}
    wrong = {**offer, "size": len(chunk.data) + 1}
    negotiate = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
    asked = [
        client.send("POST", negotiate, {"rank": 0, "chunks": [offer]}),
        client.send("POST", negotiate, {"rank": 0, "chunks": [wrong]}),
        client.send("POST", routes.path(routes.READ_TARGETS, checkpoint=readable), {"digests": [chunk.digest]}),
        client.send("POST", routes.path(routes.DAMAGE, checkpoint=readable), {"digests": [chunk.digest]}),
        client.send("GET", chunk_path(readable, chunk.digest)),
        client.send("HEAD", chunk_path(readable, chunk.digest)),
        client.send("GET", chunk_path(checkpoint, chunk.digest)),
    ]
    sent: list[RawAnswer] = [
        put_chunk(service, checkpoint, chunk, token=token, body=b"x" * len(chunk.data)),
        put_chunk(service, checkpoint, chunk, token=token, headers={routes.CRC64_HEADER: "0" * 16}),
        exchange(service, "HEAD", chunk_path(checkpoint, chunk.digest), token=token),
    ]
    told = [(answer.status, _plain(answer.headers), answer.content) for answer in asked]
    told += [(answer.status, _plain(answer.headers), answer.body) for answer in sent]
    return [_anonymous(item, chunk) for item in told]


def _plain(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in VARYING}


def _anonymous(answer: tuple[int, dict[str, str], bytes], chunk: Payload) -> tuple[int, dict[str, str], bytes]:
    status, headers, body = answer
    for known, name in ((chunk.digest, "DIGEST"), (f"{chunk.ref.crc64:016x}", "CRC"), (str(chunk.ref.crc64), "CRC")):
        body = body.replace(known.encode(), name.encode())
    return status, {name: value for name, value in headers.items() if name != "content-length"}, _no_id(body)


def _no_id(body: bytes) -> bytes:
    before, found, after = body.partition(b'"request_id": "')
    return before + after.partition(b'"')[2] if found else body


def test_no_answer_tells_whether_another_project_has_a_chunk(service: ServiceProcess) -> None:
    _, theirs = committed_checkpoint(service, project="theirs", run="run", rows=64)
    readable, _ = committed_checkpoint(service, project="mine", run="done")
    checkpoint = open_checkpoint(service, project="mine")
    token = new_token(service, "delete", project="mine")
    nobodys = payload(len(theirs.data))
    assert answers_about(service, token, checkpoint, readable, theirs) == answers_about(
        service, token, checkpoint, readable, nobodys
    )


def test_the_same_bytes_are_stored_for_each_project_and_counted_for_each(service: ServiceProcess) -> None:
    _, theirs = committed_checkpoint(service, project="theirs", run="run", rows=64)
    checkpoint = open_checkpoint(service, project="mine")
    before = ProcessClient(service).ask("GET", "/v1/projects/mine/quota")["used_bytes"]
    answer = put_chunk(service, checkpoint, theirs)
    assert (answer.status, b'"present":false' in answer.body.replace(b" ", b"")) == (201, True)
    assert ProcessClient(service).ask("GET", "/v1/projects/mine/quota")["used_bytes"] == before + len(theirs.data)
    assert ProcessClient(service).ask("GET", "/v1/projects/theirs/quota")["used_bytes"] == len(theirs.data)
