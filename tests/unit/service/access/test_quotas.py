"""Quotas: refused with numbers before a byte too many is kept, counted without drift, set by administrators only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.quotas import Allowances
from shardkeep_service.access.usage import add_usage, counted_bytes, recount, used_bytes
from shardkeep_service.errors import Refusal
from shardkeep_service.projects.repository import project_named
from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService, seen
from tests.unit.service.training import Training

pytestmark = BOTH_DATABASES
PATH = "/v1/projects/project/quota"
CHUNK_BYTES = 32


def set_quota(service: LocalService, **limits: int | None) -> dict[str, Any]:
    return service.ask("PUT", PATH, limits)


def project_id(service: LocalService) -> str:
    with service.database.read() as session:
        found = project_named(session, "project")
        assert found is not None
        return found.id


def counts(service: LocalService) -> tuple[int, int]:
    """What is kept count of, and what the rows say."""
    owner = project_id(service)
    with service.database.read() as session:
        return used_bytes(session, owner), counted_bytes(session, owner)


def test_use_is_counted_and_saves_change_it_without_drift(training: Training) -> None:
    attempt = training.start(fresh=True)
    for step in (1, 2):
        training.save(attempt, save=step, step=step)
    again = training.open_all(attempt, save=3, step=3)
    training.upload(again, 0, training.pack_all(1)[0])
    assert counts(training.service) == (4 * CHUNK_BYTES, 4 * CHUNK_BYTES)
    info = training.service.ask("GET", PATH)
    assert (info["used_bytes"], info["used_checkpoints"], info["max_bytes"]) == (4 * CHUNK_BYTES, 3, None)


def test_a_chunk_too_many_is_refused_with_use_limit_and_what_to_do(training: Training) -> None:
    attempt = training.start(fresh=True)
    training.save(attempt, save=1, step=1)
    set_quota(training.service, max_bytes=3 * CHUNK_BYTES)
    checkpoint = training.open_all(attempt, save=2, step=2)
    packed = training.pack_all(2)
    training.upload(checkpoint, 0, packed[0])
    (ref, data), = packed[1].chunks  # fmt: skip
    problem = training.service.refused(
        "quota_exceeded",
        "PUT",
        routes.path(routes.CHUNK, checkpoint=checkpoint, digest=ref.digest),
        content=data,
        headers={routes.CRC64_HEADER: f"{ref.crc64:016x}"},
    )
    assert (problem["status"], problem["retryable"]) == (403, False)
    assert (problem["used"], problem["limit"]) == (3 * CHUNK_BYTES, 3 * CHUNK_BYTES)
    for word in ("96 bytes of 96", "32 more", "delete checkpoints"):
        assert word in problem["detail"]
    assert counts(training.service) == (3 * CHUNK_BYTES, 3 * CHUNK_BYTES)


def test_negotiation_refuses_what_would_not_fit_before_anything_is_sent(training: Training) -> None:
    attempt = training.start(fresh=True)
    checkpoint = training.open_all(attempt, save=1, step=1)
    set_quota(training.service, max_bytes=CHUNK_BYTES)
    refs = [ref for packed in training.pack_all(1) for ref, _ in packed.chunks]
    offers = [{"digest": ref.digest, "size": ref.size_bytes, "crc64": ref.crc64} for ref in refs]
    path = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
    training.service.refused("quota_exceeded", "POST", path, {"rank": 0, "chunks": offers})
    training.service.ask("POST", path, {"rank": 0, "chunks": offers[:1]})


def test_what_is_present_already_needs_no_room(training: Training) -> None:
    attempt = training.start(fresh=True)
    training.save(attempt, save=1, step=1)
    set_quota(training.service, max_bytes=2 * CHUNK_BYTES + 1)
    checkpoint = training.open_all(attempt, save=2, step=2)
    for rank, packed in enumerate(training.pack_all(1)):
        training.upload(checkpoint, rank, packed)


def test_a_checkpoint_too_many_is_refused_when_it_is_opened(training: Training) -> None:
    set_quota(training.service, max_checkpoints=2)
    attempt = training.start(fresh=True)
    first = training.save(attempt, save=1, step=1)
    training.open_all(attempt, save=2, step=2)
    body = {"save": 3, "step": 3, "rank": 0, "world_size": 2}
    path = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt)
    problem = training.service.refused("quota_exceeded", "POST", path, body)
    assert (problem["used"], problem["limit"]) == (2, 2)
    training.open(attempt, save=2, step=2, rank=1)
    training.change("DELETE", routes.CHECKPOINT, first)
    training.service.ask("POST", path, body)


def test_a_project_without_a_free_byte_opens_nothing(training: Training) -> None:
    attempt = training.start(fresh=True)
    training.save(attempt, save=1, step=1)
    set_quota(training.service, max_bytes=2 * CHUNK_BYTES)
    body = {"save": 2, "step": 2, "rank": 0, "world_size": 2}
    path = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt)
    training.service.refused("quota_exceeded", "POST", path, body)


def test_a_limit_that_is_lowered_during_a_save_ends_it_with_the_reason(training: Training) -> None:
    checkpoint = training.open_all(training.start(fresh=True), save=1, step=1)
    packed = training.pack_all(1)
    for rank, one in enumerate(packed):
        training.upload(checkpoint, rank, one)
    set_quota(training.service, max_bytes=CHUNK_BYTES)
    state = training.finish(checkpoint, packed)
    assert (state["state"], state["abort"]["code"]) == ("aborted", "quota_exceeded")
    assert "64 bytes of 32" in state["abort"]["reason"]


def test_a_limit_can_be_raised_and_taken_away_and_each_change_is_recorded_once(training: Training) -> None:
    service = training.service
    for limits in ({"max_bytes": 1}, {"max_bytes": 1}, {"max_bytes": 10**12}, {}):
        set_quota(service, **limits)
    assert service.ask("GET", PATH)["max_bytes"] is None
    recorded = service.ask("GET", "/v1/audit", query={"action": "quota.set"})["items"]
    assert [entry["detail"]["max_bytes"] for entry in recorded] == [None, 10**12, 1]
    assert recorded[1]["detail"]["before"]["max_bytes"] == 1


def test_a_quota_that_is_not_the_one_that_was_seen_is_not_replaced(training: Training) -> None:
    training.start()
    service = training.service
    assert service.ask("GET", PATH)["version"] == 0
    first = service.ask("PUT", PATH, {"max_bytes": 100}, **seen(0))["version"]
    second = set_quota(service, max_bytes=200)["version"]
    assert second > first > 0
    assert service.send("GET", PATH).headers["etag"] == f'"{second}"'
    for version in (0, first):
        problem = service.refused("version_changed", "PUT", PATH, {"max_bytes": 300}, **seen(version))
        assert problem["version"] == second
    assert service.ask("PUT", PATH, {"max_bytes": 200}, **seen(first))["version"] == second
    assert service.ask("PUT", PATH, {}, **seen(second))["max_bytes"] is None


def test_of_first_quotas_at_the_same_time_one_is_set_by_whoever_saw_none(training: Training) -> None:
    training.start()

    def change(most: int) -> int:
        return training.service.send("PUT", PATH, {"max_bytes": most}, **seen(0)).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(change, range(1, 9))) == [200] + [412] * 7


def test_a_tenant_sees_its_quota_and_does_not_lift_it(training: Training) -> None:
    owner = first_admin(training.service).make("admin", projects=["project"])
    set_quota(training.service, max_bytes=5)
    assert owner.ask("GET", PATH)["max_bytes"] == 5
    owner.refused("scope_too_narrow", "PUT", PATH, {"max_bytes": 10**12})
    owner.refused("unknown_project", "GET", "/v1/projects/nope/quota")


@pytest.mark.parametrize("body", [{"max_bytes": -1}, {"max_bytes": 2**63}, {"max_chunks": 1}, {"max_bytes": "many"}])
def test_malformed_limits_are_refused(training: Training, body: dict[str, Any]) -> None:
    training.service.refused("malformed_request", "PUT", PATH, body)


def test_uploads_at_the_same_time_never_pass_the_limit_together(training: Training) -> None:
    service, limit = training.service, 5
    owner = project_id(service)
    set_quota(service, max_bytes=limit * 10)

    def take(_: int) -> bool:
        with service.database.write() as session:
            allowances = Allowances(session, [owner])
            try:
                allowances.check(owner, 10)
            except Refusal:
                return False
            allowances.add(owner, 10)
            allowances.settle()
            return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, range(24))) == limit
    with service.database.read() as session:
        assert used_bytes(session, owner) == limit * 10


def test_a_recount_beside_writers_loses_and_doubles_nothing(training: Training) -> None:
    """Every writer adds a row and counts it; recounts run in between, and the two sums are equal at the end."""
    service = training.service
    training.save(training.start(fresh=True), save=1, step=1)
    owner = project_id(service)
    with service.database.write() as session:
        add_usage(session, owner, 12_345)
    with service.database.write() as session:
        recount(session, [owner])
    assert counts(service) == (2 * CHUNK_BYTES, 2 * CHUNK_BYTES)

    def save(number: int) -> None:
        other = Training(service, run=f"run{number}")
        other.save(other.start(fresh=True), save=1, step=number)

    def count_again(_: int) -> None:
        with service.database.write() as session:
            recount(session, [owner])

    with ThreadPoolExecutor(6) as threads:
        saving = [threads.submit(save, number) for number in range(2, 8)]
        list(threads.map(count_again, range(20)))
        for one in saving:
            one.result()
    kept, truth = counts(service)
    assert kept == truth == 14 * CHUNK_BYTES
