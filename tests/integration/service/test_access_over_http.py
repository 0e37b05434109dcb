"""Access over HTTP: scopes and projects, the same on every endpoint; tokens; nothing secret in logs or files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_id
from shardkeep_service.access.default_deny import PUBLIC
from tests.integration.service.process_client import (
    ProcessClient,
    chunk_path,
    command,
    committed_checkpoint,
    exchange,
    new_token,
    open_checkpoint,
    payload,
    put_chunk,
)
from tests.service_process import ServiceProcess
from tests.unit.service.training import Training, pack, weights

ALL_ROUTES = sorted(
    value for name, value in vars(routes).items() if name.isupper() and str(value).startswith("/v1") and name != "PATH"
)
METHODS = ("GET", "PUT", "POST", "DELETE")
GUARDED = [(method, template) for template in ALL_ROUTES for method in METHODS if (method, template) not in PUBLIC]
"""Signing in and out need no token: see `test_sign_in_defences.py`."""


def target(template: str) -> str:
    ids: dict[str, str | int] = {
        "checkpoint": new_id("ckp"),
        "attempt": new_id("att"),
        "digest": "0" * 64,
        "layout": 0,
        "other": new_id("ckp"),
        "rank": 0,
        "tag": "best",
        "token": new_id("tok"),
    }
    return routes.path(template, project="project", run="run", **ids)


def test_E194_no_route_answers_without_a_valid_token(shared_service: ServiceProcess) -> None:
    for method, template in GUARDED:
        answer = exchange(shared_service, method, target(template), headers={"authorization": ""})
        assert answer.status in (401, 405), (method, template, answer.status)
        if answer.status == 401:
            assert answer.problem()["code"] == "token_missing"
            assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("token", ["shardkeep_" + "0" * 33, "x", "admin"])
def test_unknown_tokens_are_invalid(shared_service: ServiceProcess, token: str) -> None:
    assert exchange(shared_service, "GET", routes.CAPABILITIES, token=token).problem()["code"] == "token_invalid"


def test_E194_a_reader_is_refused_by_every_route_that_writes(shared_service: ServiceProcess) -> None:
    reader = new_token(shared_service, "read")
    plans = {routes.PROJECT_RETENTION_PLAN, routes.RUN_RETENTION_PLAN}
    reading = {routes.LOAD_PLAN, routes.READ_TARGETS, routes.DAMAGE, *plans}
    for method, template in GUARDED:
        if method != "GET" and template not in reading:
            answer = exchange(shared_service, method, target(template), token=reader, body=b"{}")
            if answer.status != 405:
                assert answer.problem()["code"] == "scope_too_narrow", (method, template, answer)


def test_E194_a_writer_saves_and_a_reader_reads_it(shared_service: ServiceProcess) -> None:
    ProcessClient(shared_service).ask("POST", routes.PROJECTS, {"name": "team"})
    writer, reader = (new_token(shared_service, scope, project="team") for scope in ("write", "read"))
    training = Training(ProcessClient(shared_service, token=writer), "team", "run")
    checkpoint = training.save(training.start(2, fresh=True), save=1, step=1)
    as_reader = Training.__new__(Training)
    as_reader.service, as_reader.project, as_reader.run = ProcessClient(shared_service, token=reader), "team", "run"
    assert as_reader.latest_id() == checkpoint
    assert as_reader.load(checkpoint).shape == (4, 4)


def test_E188_a_token_of_one_project_sees_no_other_on_any_route(shared_service: ServiceProcess) -> None:
    mine, chunk = committed_checkpoint(shared_service, project="mine", run="run")
    theirs, other = committed_checkpoint(shared_service, project="theirs", run="run", rows=12)
    token = new_token(shared_service, "admin", project="mine")
    client = ProcessClient(shared_service, token=token)
    assert [project["name"] for project in client.ask("GET", routes.PROJECTS)["items"]] == ["mine"]
    assert exchange(shared_service, "GET", chunk_path(mine, chunk.digest), token=token).status == 200
    for template in ALL_ROUTES:
        if "{checkpoint}" not in template:
            continue
        for method in METHODS:
            parts: dict[str, str | int] = {"digest": other.digest, "rank": 0, "tag": "best", "other": mine}
            path = routes.path(template, checkpoint=theirs, **parts)
            hidden = exchange(shared_service, method, path, token=token, body=body_for(template), headers=HEADERS)
            absent_path = routes.path(template, checkpoint=new_id("ckp"), **parts)
            absent = exchange(
                shared_service, method, absent_path, token=token, body=body_for(template), headers=HEADERS
            )
            assert hidden.status == absent.status, (method, template)
            assert hidden.status in (400, 404, 405, 422), (method, template, hidden)
            if hidden.status == 404:
                assert hidden.problem()["code"] == absent.problem()["code"] == "unknown_checkpoint"
                assert hidden.problem()["detail"] == absent.problem()["detail"]
    for template in (routes.PROJECT, routes.RUNS, routes.RUN, routes.LATEST, routes.RUN_CHECKPOINTS):
        answer = exchange(shared_service, "GET", routes.path(template, project="theirs", run="run"), token=token)
        assert answer.problem()["code"] == "unknown_project", template


HEADERS = {"content-type": "application/json", "if-match": '"1"', routes.CRC64_HEADER: "0" * 16}


def body_for(template: str) -> bytes:
    bodies = {
        routes.NEGOTIATE: {"rank": 0, "chunks": [{"digest": "0" * 64, "size": 1, "crc64": 0}]},
        routes.READ_TARGETS: {"digests": ["0" * 64]},
        routes.DAMAGE: {"digests": ["0" * 64]},
        routes.ABORT: {"rank": 0, "reason": "x"},
        routes.PIN: {"reason": "x"},
    }
    return json.dumps(bodies.get(template, {})).encode() if template in bodies else b""


def test_a_token_tells_about_itself(shared_service: ServiceProcess) -> None:
    made = command(shared_service, "token", "create", "--scope", "write", "--name", "night job", "--expires-in", "30d")
    assert made.returncode == 0, made.stderr
    token = made.stdout.splitlines()[-1]
    info = ProcessClient(shared_service, token=token).ask("GET", routes.TOKEN_SELF)
    assert (info["scope"], info["name"], info["project"]) == ("write", "night job", None)
    assert token.startswith(info["prefix"])
    assert info["expires_at"] > info["created_at"]


def test_a_revoked_token_is_refused_within_a_second_or_so(shared_service: ServiceProcess) -> None:
    token = new_token(shared_service, "read")
    token_id = ProcessClient(shared_service, token=token).ask("GET", routes.TOKEN_SELF)["id"]
    assert command(shared_service, "token", "revoke", token_id).returncode == 0
    time.sleep(1.1)
    assert exchange(shared_service, "GET", routes.TOKEN_SELF, token=token).problem()["code"] == "token_invalid"
    listed = command(shared_service, "token", "list", "--json").stdout.splitlines()
    assert [json.loads(line)["revoked_at"] is not None for line in listed if token_id in line] == [True]


def test_no_token_reaches_the_log_or_a_list(shared_service: ServiceProcess) -> None:
    token = new_token(shared_service, "read")
    exchange(shared_service, "GET", f"{routes.PROJECTS}?token={token}", token=token)
    exchange(shared_service, "GET", f"/v1/{token}", token=token)
    exchange(shared_service, "GET", routes.CAPABILITIES, token=token + "x")
    listed = command(shared_service, "token", "list").stdout + command(shared_service, "token", "list", "--json").stdout
    for text in (shared_service.log, listed):
        assert token not in text
        assert shared_service.token not in text
        assert not re.search(r"shardkeep_[0-9A-Za-z]{10}", text)


def test_the_admin_token_files_are_private(shared_service: ServiceProcess) -> None:
    files = [shared_service.data_dir / "admin-token.json", *(shared_service.home / "services").iterdir()]
    assert len(files) == 2
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600
        content = json.loads(path.read_text())
        assert (content["url"], content["token"]) == (shared_service.url, shared_service.token)
    assert (shared_service.home / "services").stat().st_mode & 0o777 == 0o700


@pytest.fixture(scope="module")
def untouched_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service that does nothing by itself: nothing was ever written to it."""
    with ServiceProcess(tmp_path_factory.mktemp("untouched") / "service") as service:
        yield service


@pytest.mark.parametrize(
    "evil",
    [
        "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "..", "%2e%2e%2f", "/etc/passwd", "%00", "a%00b", "a%5cb",
        "..%5c..%5c", "a%23b", "a%3fb=c", "%ff", "%252e%252e%252f", "a/../../b", ".", "%2e", "~root",
        "a%0d%0aset-cookie:x",
    ],
)  # fmt: skip
def test_E186_path_tricks_are_4xx_and_touch_nothing(untouched_service: ServiceProcess, evil: str) -> None:
    before = sorted(
        path for path in untouched_service.data_dir.rglob("*") if path.is_file() and "readiness" not in path.parts
    )
    for method in METHODS:
        for path in (
            f"/v1/projects/{evil}", f"/v1/projects/{evil}/runs/x", f"/v1/projects/project/runs/{evil}",
            f"/v1/projects/project/runs/{evil}/latest", f"/v1/checkpoints/{evil}", f"/v1/checkpoints/{evil}/chunks/x",
            f"/v1/checkpoints/{new_id('ckp')}/chunks/{evil}", f"/v1/checkpoints/{new_id('ckp')}/manifests/{evil}",
            f"/v1/checkpoints/{new_id('ckp')}/tensors?prefix={evil}", f"/v1/attempts/{evil}/resume",
        ):  # fmt: skip
            answer = exchange(untouched_service, method, path, body=b"" if method in ("PUT", "POST") else None)
            assert 400 <= answer.status < 500, (method, path, answer)
            assert answer.problem()["code"], (method, path)
    after = sorted(
        path for path in untouched_service.data_dir.rglob("*") if path.is_file() and "readiness" not in path.parts
    )
    assert after == before


@pytest.mark.parametrize("suffix", ["/", "//", "/%20", "?", "?a=b", "/../x"])
def test_E165_slashes_at_the_root_give_the_same_result_or_a_clear_refusal(
    shared_service: ServiceProcess, suffix: str
) -> None:
    for path in (routes.CAPABILITIES, routes.PROJECTS, routes.path(routes.RUNS, project="project"), "/v1"):
        answer = exchange(shared_service, "GET", path + suffix)
        assert answer.status == 200 or 400 <= answer.problem()["status"] < 500
        assert answer.status not in range(300, 400)


def test_E191_metrics_are_strict_json_in_every_answer(shared_service: ServiceProcess) -> None:
    training = Training(ProcessClient(shared_service), "metrics", "run")
    metrics = {
        "nan": float("nan"),
        "inf": float("inf"),
        "minus": float("-inf"),
        "big": 1e308,
        "int": 12345678901234567890.0,
    }
    packed = pack(weights(1, 1)[0], rank=0, world_size=1, step=1, metrics=metrics)
    checkpoint = training.save(training.start(1, fresh=True), save=1, step=1, world_size=1, packed=[packed])
    for path in (
        routes.path(routes.CHECKPOINT, checkpoint=checkpoint),
        training.path(routes.LATEST),
        training.path(routes.RUN),
        training.path(routes.RUN_CHECKPOINTS),
    ):
        answer = exchange(shared_service, "GET", path)

        def refuse(name: str) -> None:
            raise AssertionError(name)

        assert answer.status == 200
        json.loads(answer.body, parse_constant=refuse)
        assert b'"NaN"' in answer.body
        assert b'"-Infinity"' in answer.body


def test_a_request_id_is_taken_when_valid_and_made_otherwise(shared_service: ServiceProcess) -> None:
    kept = exchange(shared_service, "GET", "/nowhere", headers={"x-request-id": "job-7.a_b"})
    assert kept.problem()["request_id"] == "job-7.a_b"
    for bad in ("", "a b", "x" * 65, "a\tb", "é"):
        made = exchange(shared_service, "GET", "/nowhere", headers={"x-request-id": bad})
        assert re.fullmatch(r"[0-9a-f]{16}", made.problem()["request_id"])


def test_uploads_of_a_reader_are_refused_without_reading_them(shared_service: ServiceProcess) -> None:
    checkpoint, chunk = open_checkpoint(shared_service), payload(1000)
    reader = new_token(shared_service, "read")
    assert put_chunk(shared_service, checkpoint, chunk, token=reader).problem()["code"] == "scope_too_narrow"
