"""Secrets never reach logs, error answers, the audit log or metrics: a whole story at debug level is searched."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.secrets import new_token_text, shown_part
from tests.integration.service.process_client import ProcessClient, exchange
from tests.servers.seaweedfs import S3Server
from tests.service_process import ServiceProcess
from tests.unit.service.training import Training
from tests.warm_process import run_program

PASSWORD = "hunter22-correct-horse"
SESSION_TOKEN = "FwoGZXIvYXdzEExampleSessionToken"
SIGNATURE = re.compile(r"(?i)x-amz-signature=([0-9a-f]{16,})")


@dataclass
class Story:
    """A service that lived through everything, what it answered in error, and every secret that was in it."""

    service: ServiceProcess
    secrets: set[str] = field(default_factory=set)
    problems: list[bytes] = field(default_factory=list)

    def ask(self, method: str, path: str, body: Any = None, *, token: str | None = None, **options: Any) -> Any:
        answer = ProcessClient(self.service, token=token).send(method, path, body, **options)
        if answer.is_success:
            return answer.json()
        self.problems.append(answer.content)
        return None

    def leaks_in(self, text: str) -> set[str]:
        """The secrets that stand in a text, all but the part of tokens that lists show."""
        return {secret for secret in self.secrets if secret in text or hidden_part(secret) in text}


def hidden_part(secret: str) -> str:
    """Of a token what lists do not show; anything else whole."""
    return secret[len(shown_part(secret)) :] if secret.startswith("shardkeep_") else secret


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, seaweedfs: S3Server) -> Iterator[Story]:
    bucket = seaweedfs.new_bucket()
    env = {
        **seaweedfs.environment(bucket),
        "SHARDKEEP_SERVICE_LOG_LEVEL": "DEBUG",
        "SHARDKEEP_SERVICE_DIRECT": "always",
    }
    with ServiceProcess(tmp_path_factory.mktemp("leaks") / "service", env=env) as service:
        story = Story(service, {service.token, seaweedfs.secret_key})
        live_through(story)
        yield story


def live_through(story: Story) -> None:
    service = story.service
    training = Training(ProcessClient(service))
    attempt = training.start(fresh=True)
    checkpoint = training.save(attempt, save=1, step=1)
    training.load(checkpoint)
    present_tokens(story)
    sign_in_and_out(story)
    sign_urls(story, training, attempt)
    # What is malformed, with the secret in the path, the query, the body and the headers.
    for token in sorted(secret for secret in story.secrets if secret.startswith("shardkeep_")):
        story.ask("GET", f"/v1/projects/{token}")
        story.ask("GET", "/v1/projects", query={"cursor": token})
        story.ask("POST", "/v1/projects", {"name": "x", "token": token})
        exchange(service, "GET", f"/v1/{token}?token={token}", headers={"x-request-id": token, "cookie": token})
        exchange(service, "PUT", f"/v1/checkpoints/{checkpoint}/manifests/0", body=token.encode())
    exchange(service, "GET", "/v1/projects", headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})


def present_tokens(story: Story) -> None:
    """Tokens that are unknown, mistyped, of another scheme, revoked, of a job."""
    unknown = new_token_text()
    made = story.ask("POST", routes.TOKENS, {"name": "to be revoked", "scope": "read"})
    job = story.ask("POST", routes.JOB_TOKENS, {"project": "project", "run": "run"})
    story.secrets |= {unknown, f"{unknown[:-1]}x", made["token"], job["token"]}
    story.ask("DELETE", f"/v1/tokens/{made['info']['id']}")
    for token in (unknown, f"{unknown[:-1]}x", made["token"]):
        story.ask("GET", "/v1/projects", token=token)
    story.ask("DELETE", "/v1/checkpoints/ckp_0", token=job["token"])
    for header in (f"Basic {unknown}", f"Token {unknown}", unknown):
        exchange(story.service, "GET", "/v1/projects", headers={"authorization": header})


def sign_in_and_out(story: Story) -> None:
    """A browser's cookie and the word that goes with it: good, wrong, of the wrong origin, in the wrong place."""
    service = story.service
    body = json.dumps({"token": service.token}).encode()
    kind = {"content-type": "application/json"}
    answer = exchange(service, "POST", routes.SIGN_IN, body=body, headers=kind)
    cookie, csrf = answer.headers["set-cookie"].partition(";")[0], json.loads(answer.body)["csrf"]
    secret = cookie.partition("=")[2]
    story.secrets |= {secret, csrf}
    signed_in = {"authorization": "", "cookie": cookie, routes.CSRF_HEADER: csrf}
    assert exchange(service, "GET", routes.SIGN_IN, headers=signed_in).status == 200
    for headers in ({"host": secret}, {"origin": f"http://{csrf}"}, {routes.CSRF_HEADER: f"{csrf}x"}, {"cookie": csrf}):
        refused = exchange(service, "POST", routes.PROJECTS, body=b"{}", headers={**kind, **signed_in, **headers})
        assert refused.status in (400, 401, 403)
        if headers.keys() & {routes.CSRF_HEADER, "cookie"}:
            story.problems.append(refused.body)
    for token in (secret, csrf):
        exchange(service, "POST", routes.SIGN_IN, body=json.dumps({"token": token}).encode(), headers=kind)
        exchange(service, "GET", f"/ui/{token}?{cookie}", headers={"x-request-id": cookie, "referer": f"/{cookie}"})
    exchange(service, "DELETE", routes.SIGN_IN, headers=signed_in)


def sign_urls(story: Story, training: Training, attempt: str) -> None:
    """Presigned requests for writing and reading."""
    checkpoint = training.open_all(attempt, save=2, step=2)
    refs = [ref for packed in training.pack_all(2) for ref, _ in packed.chunks]
    offers = [{"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64} for ref in refs]
    path = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
    answers = [story.ask("POST", path, {"rank": 0, "chunks": offers, "direct": True})]
    committed = training.latest_id()
    assert committed is not None
    digests = [ref.digest for packed in training.pack_all(1) for ref, _ in packed.chunks]
    read = routes.path(routes.READ_TARGETS, checkpoint=committed)
    answers.append(story.ask("POST", read, {"digests": digests, "direct": True}))
    signatures = set(SIGNATURE.findall(str(answers)))
    assert len(signatures) == len(offers) + len(digests)
    story.secrets |= signatures


def test_the_log_of_a_whole_story_at_debug_level_holds_no_secret(story: Story) -> None:
    log = story.service.log
    assert '"level": "debug"' in log
    assert story.leaks_in(log) == set()
    assert shown_part(story.service.token) is not None


def test_error_answers_hold_no_secret_even_when_the_request_did(story: Story) -> None:
    assert len(story.problems) > 10
    for problem in story.problems:
        assert story.leaks_in(problem.decode()) == set(), problem


@pytest.mark.parametrize("path", ["/v1/audit/export", "/metrics", "/v1/tokens?limit=200", "/v1/openapi.json"])
def test_what_administrators_read_holds_no_secret(story: Story, path: str) -> None:
    answer = ProcessClient(story.service).send("GET", path)
    assert answer.status == 200
    assert len(answer.content) > 100
    assert story.leaks_in(answer.content.decode()) == set()


def test_secrets_are_in_no_file_of_the_data_directory_but_the_one_that_is_for_its_owner(story: Story) -> None:
    for path in story.service.data_dir.rglob("*"):
        if path.is_file() and path.name != "admin-token.json":
            content = path.read_bytes().decode("latin-1")
            assert story.leaks_in(content) == set(), path


FAILING = {
    "a database that does not answer": {
        "SHARDKEEP_SERVICE_DATABASE_URL": f"postgresql://shardkeep:{PASSWORD}@127.0.0.1:1/nowhere"
    },
    "a database URL that is none": {"SHARDKEEP_SERVICE_DATABASE_URL": f"postgresql:/shardkeep:{PASSWORD}@[::1"},
    "a database of an unknown kind": {"SHARDKEEP_SERVICE_DATABASE_URL": f"oracle://shardkeep:{PASSWORD}@db/x"},
    "half of a pair of keys": {
        "SHARDKEEP_SERVICE_S3_BUCKET": "bucket",
        "SHARDKEEP_SERVICE_S3_SECRET_ACCESS_KEY": PASSWORD,
    },
    "keys in the endpoint": {
        "SHARDKEEP_SERVICE_S3_BUCKET": "bucket",
        "SHARDKEEP_SERVICE_S3_ENDPOINT_URL": f"http://key:{PASSWORD}@127.0.0.1:1",
    },
    "a store that does not answer": {
        "SHARDKEEP_SERVICE_S3_BUCKET": "bucket",
        "SHARDKEEP_SERVICE_S3_ENDPOINT_URL": "http://127.0.0.1:1",
        "SHARDKEEP_SERVICE_S3_ACCESS_KEY_ID": "key",
        "SHARDKEEP_SERVICE_S3_SECRET_ACCESS_KEY": PASSWORD,
        "SHARDKEEP_SERVICE_S3_SESSION_TOKEN": SESSION_TOKEN,
        "SHARDKEEP_SERVICE_S3_RETRY_SECONDS": "0",
    },
    "a setting of the wrong kind": {"SHARDKEEP_SERVICE_PORT": PASSWORD},
}


@pytest.mark.parametrize("settings", FAILING.values(), ids=list(FAILING))
def test_a_service_that_cannot_start_tells_why_and_no_secret(tmp_path: Path, settings: dict[str, str]) -> None:
    env = {
        **os.environ,
        "SHARDKEEP_HOME": str(tmp_path / "home"),
        "SHARDKEEP_SERVICE_LOG_LEVEL": "DEBUG",
        "SHARDKEEP_SERVICE_MIGRATE_AT_START": "true",
        **settings,
    }
    done = run_program("shardkeep-service", "serve", "--data", str(tmp_path / "data"), env=env)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert said.strip()
    assert PASSWORD not in said
    assert SESSION_TOKEN not in said
    last = said.strip().splitlines()[-1]
    assert last.startswith("shardkeep-service: "), last
    assert not re.search(r"^Traceback", said, re.MULTILINE), said[-3000:]
