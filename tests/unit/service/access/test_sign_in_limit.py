"""Failed sign-ins are limited, by address and altogether, in bounded memory; good ones use nothing up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.secrets import new_token_text
from shardkeep_service.access.sign_in_limit import (
    ADDRESS_FAILURES,
    ADDRESS_SECONDS,
    ADDRESSES_LIMIT,
    ALL_FAILURES,
    ALL_SECONDS,
    SignInLimit,
)
from shardkeep_service.errors import Refusal
from tests.unit.service.access.browsers import Browser
from tests.unit.service.access.holders import first_admin
from tests.unit.service.local_service import LocalService

HERE = "192.0.2.1"


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limit(clock: Clock) -> SignInLimit:
    return SignInLimit(clock=clock)


def fail(limit: SignInLimit, address: str = HERE, *, asks_database: bool = True) -> bool:
    """Whether the attempt was let through; then it fails."""
    try:
        with limit.attempt(address, asks_database=asks_database):
            raise Refusal(ErrorCode.TOKEN_INVALID, "unknown")
    except Refusal as refusal:
        return refusal.code is ErrorCode.TOKEN_INVALID


def addresses(count: int) -> list[str]:
    return [f"10.1.{number >> 8}.{number & 255}" for number in range(count)]


def failures(limit: SignInLimit, address: str = HERE, *, attempts: int = ALL_FAILURES * 2) -> int:
    return sum(fail(limit, address) for _ in range(attempts))


def test_an_address_has_its_failures_at_once_and_then_one_each_while(limit: SignInLimit, clock: Clock) -> None:
    assert failures(limit) == ADDRESS_FAILURES
    clock.seconds += ADDRESS_SECONDS * 0.9
    assert not fail(limit)
    clock.seconds += ADDRESS_SECONDS * 0.2
    assert [fail(limit), fail(limit)] == [True, False]


def test_the_refusal_says_when_to_come_back(limit: SignInLimit) -> None:
    failures(limit)
    with pytest.raises(Refusal) as caught, limit.attempt(HERE, asks_database=True):
        pass
    assert caught.value.code is ErrorCode.TOO_MANY_SIGN_INS
    assert caught.value.retry_after_seconds == pytest.approx(ADDRESS_SECONDS)


def test_what_is_refused_counts_for_nothing_so_waiting_as_told_is_enough(limit: SignInLimit, clock: Clock) -> None:
    failures(limit, attempts=1_000)
    clock.seconds += ADDRESS_SECONDS * 1.01
    assert fail(limit)


def test_another_address_is_not_kept_waiting(limit: SignInLimit) -> None:
    failures(limit)
    assert fail(limit, "192.0.2.2")


def test_all_addresses_together_have_a_limit_too(limit: SignInLimit, clock: Clock) -> None:
    assert sum(fail(limit, address) for address in addresses(ALL_FAILURES * 2)) == ALL_FAILURES
    clock.seconds += ALL_SECONDS * 1.01
    assert fail(limit, "198.51.100.1")


def test_ten_addresses_that_fail_steadily_keep_nobody_else_waiting(limit: SignInLimit, clock: Clock) -> None:
    for _ in range(120):
        clock.seconds += 1
        for address in addresses(10):
            failures(limit, address, attempts=ADDRESS_FAILURES + 1)
        with limit.attempt(HERE, asks_database=True):
            pass


def test_what_does_not_ask_the_database_counts_for_its_address_only(limit: SignInLimit) -> None:
    attempts = [fail(limit, address, asks_database=False) for address in addresses(ALL_FAILURES * 2)]
    assert all(attempts)
    assert sum(fail(limit, address) for address in addresses(ALL_FAILURES * 2)) == ALL_FAILURES


def test_what_does_not_ask_the_database_is_limited_by_address_all_the_same(limit: SignInLimit) -> None:
    assert sum(fail(limit, asks_database=False) for _ in range(ADDRESS_FAILURES * 2)) == ADDRESS_FAILURES
    assert not fail(limit)


def test_good_sign_ins_use_nothing_up(limit: SignInLimit) -> None:
    for _ in range(ALL_FAILURES * 3):
        with limit.attempt(HERE, asks_database=True):
            pass
    assert failures(limit) == ADDRESS_FAILURES
    assert sum(fail(limit, address) for address in addresses(ALL_FAILURES)) == ALL_FAILURES - ADDRESS_FAILURES


def test_a_fault_of_ours_is_no_failure_of_theirs(limit: SignInLimit) -> None:
    for _ in range(ALL_FAILURES):
        with pytest.raises(OSError, match="ours"), limit.attempt(HERE, asks_database=True):
            raise OSError("ours")
    assert fail(limit)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", HERE, True),
        ("unknown", "nonsense", True),
    ],
)
def test_what_counts_as_one_address(limit: SignInLimit, one: str, other: str, same: bool) -> None:
    failures(limit, one)
    assert fail(limit, other) is not same


def test_memory_is_bounded_and_the_one_that_tried_longest_ago_is_forgotten(clock: Clock) -> None:
    limit = SignInLimit(clock=clock)
    for number in range(ADDRESSES_LIMIT + 500):
        clock.seconds += 1
        fail(limit, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
    assert limit.remembered_addresses == ADDRESSES_LIMIT


def test_many_at_once_pass_no_more_than_one_by_one(limit: SignInLimit) -> None:
    passed: list[bool] = []
    begin = threading.Barrier(8)

    def attempt() -> None:
        begin.wait()
        passed.extend(fail(limit) for _ in range(20))

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(passed) == ADDRESS_FAILURES


@pytest.fixture
def standing(local: LocalService, limit: SignInLimit) -> LocalService:
    """A service for whose limit no time passes, however slow the machine is."""
    local.app.state.sign_in_limit = limit
    return local


def test_guessing_at_the_service_is_stopped_and_even_the_right_token_waits(standing: LocalService) -> None:
    browser = Browser(standing)
    for _ in range(ADDRESS_FAILURES):
        browser.refused("token_invalid", "POST", routes.SIGN_IN, {"token": new_token_text()})
    answer = browser.send("POST", routes.SIGN_IN, {"token": first_admin(standing).token})
    assert (answer.status, answer.json()["code"]) == (429, "too_many_sign_ins")
    assert 1 <= int(answer.headers["retry-after"]) <= ADDRESS_SECONDS
    assert browser.cookies == {}


def test_a_text_that_is_no_token_costs_the_database_nothing_and_is_limited(
    standing: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> None:
        raise AssertionError("the database was asked")

    monkeypatch.setattr(standing.database, "read", read)
    for _ in range(ADDRESS_FAILURES):
        Browser(standing).refused("token_invalid", "POST", routes.SIGN_IN, {"token": "nonsense"})
    Browser(standing).refused("too_many_sign_ins", "POST", routes.SIGN_IN, {"token": new_token_text()})


def test_who_is_signed_in_and_who_has_a_token_is_not_kept_waiting(local: LocalService) -> None:
    admin = first_admin(local)
    browser = Browser(local)
    browser.sign_in(admin.token)
    for _ in range(ADDRESS_FAILURES + 1):
        Browser(local).send("POST", routes.SIGN_IN, {"token": "nonsense"})
    browser.ask("GET", routes.TOKEN_SELF)
    admin.ask("GET", routes.TOKEN_SELF)


def test_another_origins_attempts_do_not_use_up_ours(local: LocalService) -> None:
    for _ in range(ADDRESS_FAILURES + 1):
        headers: dict[str, str | None] = {"origin": "https://elsewhere.example"}
        Browser(local).refused("origin_refused", "POST", routes.SIGN_IN, {"token": "nonsense"}, headers=headers)
    Browser(local).sign_in(first_admin(local).token)


def test_the_limit_is_of_one_application(tmp_path: Path, local: LocalService) -> None:
    for _ in range(ADDRESS_FAILURES):
        Browser(local).send("POST", routes.SIGN_IN, {"token": "nonsense"})
    with LocalService(tmp_path / "other") as other:
        Browser(other).sign_in(first_admin(other).token)
