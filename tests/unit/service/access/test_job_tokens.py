"""A job's token: its run and nothing beside it, no deleting, no tokens of its own, and a short life."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access import job_tokens
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES


@pytest.fixture
def writer(local: LocalService) -> Holder:
    local.ask("PUT", "/v1/projects/project/runs/run")
    local.ask("PUT", "/v1/projects/project/runs/other")
    return first_admin(local).make("write", name="team", projects=["project"])


def training_with(holder: Holder, run: str = "run") -> Training:
    """A training whose every request carries the holder's token."""
    service = holder.service
    service._headers = {"authorization": f"Bearer {holder.token}"}
    return Training(service, run=run)


def test_a_job_saves_and_reads_its_run(writer: Holder) -> None:
    job = writer.mint()
    assert (job.info["run"], job.info["projects"], job.info["scope"]) == ("run", ["project"], "write")
    training = training_with(job)
    checkpoint = training.save(training.start(fresh=True), save=1, step=1)
    assert training.latest_id() == checkpoint
    assert training.load(checkpoint).shape == (4, 4)


def test_other_runs_do_not_exist_for_a_job(writer: Holder) -> None:
    owner = first_admin(writer.service)
    other = Training(writer.service, run="other")
    checkpoint = other.save(other.start(fresh=True), save=1, step=1)
    attempt = other.info(checkpoint)["attempt_id"]
    job = writer.mint()
    runs = "/v1/projects/project/runs"
    assert [run["name"] for run in job.ask("GET", runs)["items"]] == ["run"]
    assert job.ask("GET", "/v1/checkpoints")["items"] == []
    for method, path in (
        ("GET", f"{runs}/other"),
        ("PUT", f"{runs}/other"),
        ("PUT", f"{runs}/new"),
        ("GET", f"{runs}/other/latest"),
        ("GET", f"{runs}/other/checkpoints"),
        ("GET", f"{runs}/other/attempts"),
    ):
        job.refused("unknown_run", method, path)
    job.refused("unknown_attempt", "GET", f"/v1/attempts/{attempt}")
    job.refused("unknown_run", "GET", f"/v1/runs-by-id/{owner.ask('GET', f'{runs}/other')['id']}")
    for path in ("/v1/projects/project/retention/plan", "/v1/projects/project/retention", "/v1/integrity/findings"):
        job.refused("scope_too_narrow", "GET", path)
    for path in ("", "/state", "/tensors", "/manifests/0"):
        job.refused("unknown_checkpoint", "GET", f"/v1/checkpoints/{checkpoint}{path}")
    assert owner.ask("GET", f"{runs}/other")["name"] == "other"
    owner.refused("unknown_run", "GET", f"{runs}/new")


def test_a_job_deletes_nothing_not_even_its_own(writer: Holder) -> None:
    training = training_with(writer.mint())
    checkpoint = training.save(training.start(fresh=True), save=1, step=1)
    for method, path in (("DELETE", ""), ("POST", "/restore")):
        problem = writer.service.refused(
            "scope_too_narrow", method, f"/v1/checkpoints/{checkpoint}{path}", headers={"if-match": '"2"'}
        )
        assert "delete" in problem["detail"]


def test_a_job_neither_learns_of_nor_names_nor_reads_bytes_that_only_other_runs_have(writer: Holder) -> None:
    other = Training(writer.service, run="other")
    packed = other.pack_all(step=1)
    other.save(other.start(fresh=True), save=1, step=1, packed=packed)
    job = writer.mint()
    training = training_with(job)
    checkpoint = training.open_all(training.start(fresh=True), save=1, step=1)
    (ref, _data), = packed[0].chunks  # fmt: skip
    offer = {"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64}
    negotiated = job.ask("POST", routes.path(routes.NEGOTIATE, checkpoint=checkpoint), {"rank": 0, "chunks": [offer]})
    assert [chunk["present"] for chunk in negotiated["chunks"]] == [False]
    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    problem = job.refused("chunks_missing", "PUT", path, content=packed[0].manifest)
    assert problem["chunks"] == [ref.digest]
    own = training.pack_all(step=1)
    assert own == packed
    assert training.finish(checkpoint, packed)["state"] == "committed"
    training.load(checkpoint)


def test_a_chunk_of_another_run_is_unknown_under_a_jobs_own_checkpoint(writer: Holder) -> None:
    other = Training(writer.service, run="other")
    packed = other.pack_all(step=2)
    other.save(other.start(fresh=True), save=1, step=2, packed=packed)
    job = writer.mint()
    training = training_with(job)
    checkpoint = training.save(training.start(fresh=True), save=1, step=1)
    digest = packed[0].chunks[0][0].digest
    job.refused("unknown_chunk", "GET", routes.path(routes.CHUNK, checkpoint=checkpoint, digest=digest))
    job.refused("unknown_chunk", "POST", routes.path(routes.READ_TARGETS, checkpoint=checkpoint), {"digests": [digest]})
    report = job.ask("POST", routes.path(routes.DAMAGE, checkpoint=checkpoint), {"digests": [digest, "0" * 64]})
    assert report["damaged"] == [digest, "0" * 64]
    other_holder = first_admin(writer.service)
    assert other_holder.send("GET", "/v1/projects").status == 200


def test_a_job_mints_no_tokens(writer: Holder) -> None:
    job = writer.mint()
    job.refused("scope_too_narrow", "POST", "/v1/tokens/job", {"project": "project", "run": "run"})
    job.refused("scope_too_narrow", "POST", "/v1/tokens", {"name": "x", "scope": "read"})


def test_only_a_token_that_may_write_mints_and_only_within_its_projects(writer: Holder) -> None:
    admin = first_admin(writer.service)
    body = {"project": "project", "run": "run"}
    admin.make("read").refused("scope_too_narrow", "POST", "/v1/tokens/job", body)
    admin.ask("PUT", "/v1/projects/elsewhere/runs/run")
    writer.refused("unknown_project", "POST", "/v1/tokens/job", {**body, "project": "elsewhere"})
    writer.refused("unknown_run", "POST", "/v1/tokens/job", {**body, "run": "nope"})
    writer.refused("malformed_request", "POST", "/v1/tokens/job", {**body, "scope": "delete"})


def test_a_jobs_token_lives_no_longer_than_is_allowed(writer: Holder) -> None:
    longest = round(writer.service.settings.job_token_seconds)
    body = {"project": "project", "run": "run"}
    writer.refused("scope_too_narrow", "POST", "/v1/tokens/job", {**body, "expires_in_seconds": longest + 1})
    job = writer.mint(expires_in_seconds=60)
    writer.service.advance(61)
    writer.service.app.state.gate.forget()
    job.refused("token_expired", "GET", "/v1/projects")


def test_a_jobs_token_dies_with_the_one_that_minted_it(writer: Holder) -> None:
    job = writer.mint()
    job.ask("GET", "/v1/projects")
    assert job.info["parent_id"] == writer.info["id"]
    first_admin(writer.service).ask("DELETE", f"/v1/tokens/{writer.info['id']}")
    job.refused("token_invalid", "GET", "/v1/projects")


def test_the_number_of_living_job_tokens_is_bounded(writer: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_tokens, "LIVING_LIMIT", 2)
    jobs = [writer.mint() for _ in range(2)]
    writer.refused("quota_exceeded", "POST", "/v1/tokens/job", {"project": "project", "run": "run"})
    first_admin(writer.service).ask("DELETE", f"/v1/tokens/{jobs[0].info['id']}")
    assert replace(writer).mint().info["run"] == "run"


def test_tokens_are_listed_by_the_one_that_minted_them(writer: Holder) -> None:
    admin = first_admin(writer.service)
    admin.ask("POST", "/v1/projects", {"name": "elsewhere"})
    mine = [writer.mint(name=f"mine {number}").info["id"] for number in range(3)]
    admin.make("write", name="neighbour", projects=["project"]).mint(name="another's")
    parent = writer.info["id"]
    first = admin.ask("GET", "/v1/tokens", query={"parent": parent, "living": "true", "limit": 2})
    rest = {"parent": parent, "living": "true", "limit": 2, "cursor": first["next_cursor"]}
    second = admin.ask("GET", "/v1/tokens", query=rest)
    assert sorted(token["id"] for token in [*first["items"], *second["items"]]) == sorted(mine)
    assert second["next_cursor"] is None
    admin.refused("invalid_cursor", "GET", "/v1/tokens", query={**rest, "parent": mine[0]})
    stranger = admin.make("admin", name="stranger", projects=["elsewhere"])
    assert stranger.ask("GET", "/v1/tokens", query={"parent": parent})["items"] == []
