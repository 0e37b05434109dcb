"""Tokens that expire while a client works, and tokens of one run, against a real service."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import shardkeep as sk
from shardkeep.connection.token_source import TokenFile
from shardkeep.errors import ConfigurationError, Unauthenticated
from shardkeep.protocol import routes
from shardkeep_service.access.repository import token_by_hash
from shardkeep_service.access.secrets import token_hash
from shardkeep_service.database.database import Database
from tests.integration.service.process_client import (
    ProcessClient,
    held_bytes,
    open_checkpoint,
    payload,
    read_answer,
    started_upload,
)
from tests.service_process import ServiceProcess
from tests.waiting import wait_until


def job_token(service: ServiceProcess, run: str, *, seconds: int = 3600, scope: str = "write") -> str:
    body = {"project": "project", "run": run, "expires_in_seconds": seconds, "scope": scope}
    return str(ProcessClient(service).ask("POST", routes.JOB_TOKENS, body)["token"])


def with_run(service: ServiceProcess, run: str) -> str:
    ProcessClient(service).ask("PUT", routes.path(routes.RUN, project="project", run=run))
    return run


def expire(service: ServiceProcess, token: str) -> None:
    """Ends its time now, whenever that is: returns once the service refuses it."""
    database = Database(f"sqlite:///{service.data_dir / 'shardkeep.db'}")
    with database.write() as session:
        known = token_by_hash(session, token_hash(token))
        assert known is not None
        known.expires_at = database.now(session)
    database.close()
    wait_until_expired(service, token)


def wait_until_expired(service: ServiceProcess, token: str) -> None:
    client = ProcessClient(service, token=token)
    wait_until(lambda: client.send("GET", routes.TOKEN_SELF).status == 401)


def loaded(client: sk.Client, run: str, name: str, size: int) -> npt.NDArray[np.float32]:
    """The tensor as the run's last checkpoint has it."""
    found = client.run(f"project/{run}").latest()
    assert found is not None
    state = {name: np.zeros(size, np.float32)}
    found.load_into(state)
    return state[name]


@pytest.fixture
def token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SHARDKEEP_TOKEN", raising=False)
    path = tmp_path / "token"
    monkeypatch.setenv("SHARDKEEP_TOKEN_FILE", str(path))
    return path


def rotate(path: Path, token: str) -> None:
    """As a secret mount does it: a new file in the place of the old one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{token}\n")
    fresh.replace(path)


def test_E150_a_token_that_is_rotated_during_a_save_fails_nothing(
    shared_service: ServiceProcess, token_file: Path
) -> None:
    run = with_run(shared_service, "rotated")
    first = job_token(shared_service, run)
    rotate(token_file, first)
    state = {f"w{number}": np.full(1000, number, np.float32) for number in range(8)}
    with sk.connect(shared_service.url) as client:
        training = client.run(f"project/{run}")
        training.save(1, state).wait(60)
        rotate(token_file, job_token(shared_service, run))
        expire(shared_service, first)
        training.save(2, {**state, "w0": state["w0"] + 1}).wait(60)
        assert training.resume() is not None
        assert loaded(client, run, "w0", 1000)[0] == 1.0


def test_E150_an_upload_that_has_begun_is_not_cut_by_its_tokens_expiry(shared_service: ServiceProcess) -> None:
    run = with_run(shared_service, "begun")
    checkpoint, chunk = open_checkpoint(shared_service, run=run), payload(100_000)
    token = job_token(shared_service, run)
    with started_upload(shared_service, checkpoint, chunk, sent_bytes=10, token=token) as connection:
        wait_until(lambda: held_bytes(shared_service))
        expire(shared_service, token)
        connection.sendall(chunk.data[10:])
        assert read_answer(connection).status == 201


def test_E150_a_token_that_expires_and_is_not_rotated_is_an_error_that_says_so(
    shared_service: ServiceProcess, token_file: Path
) -> None:
    run = with_run(shared_service, "left")
    rotate(token_file, job_token(shared_service, run, seconds=1))
    with sk.connect(shared_service.url) as client:
        wait_until_expired(shared_service, token_file.read_text().strip())
        with pytest.raises(Unauthenticated, match="expired"):
            client.run(f"project/{run}").latest()


def test_E188_a_token_that_reads_one_run_loads_it_and_no_other(shared_service: ServiceProcess) -> None:
    for run in ("granted", "refused"):
        with sk.connect(shared_service.url, shared_service.token) as client:
            client.run(f"project/{run}").save(1, {"w": np.arange(4, dtype=np.float32)}).wait(60)
    token = job_token(shared_service, "granted", scope="read")
    with sk.connect(shared_service.url, token) as client:
        assert list(loaded(client, "granted", "w", 4)) == [0, 1, 2, 3]
        with pytest.raises(sk.errors.NotFound):
            client.run("project/refused").latest()
        with pytest.raises(sk.errors.PermissionDenied):
            client.run("project/granted").save(2, {"w": np.zeros(4, np.float32)}).wait(60)


@pytest.mark.parametrize("content", [None, b"", b"  \n", b"\xff\xfe"])
def test_a_token_file_that_cannot_be_read_is_told_by_its_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=str(path)):
        TokenFile(path)


def test_a_file_is_read_once_for_all_threads_that_were_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    source = TokenFile(path)
    assert not source.renew("old")
    path.write_text("new")
    assert source.renew("old")
    path.unlink()
    assert source.renew("old")
    assert source.text == "new"
    assert list(tmp_path.iterdir()) == []
