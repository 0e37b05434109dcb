"""Which answers about requests to save make training save."""

from __future__ import annotations

import logging
from typing import Literal

import pytest

from shardkeep.protocol.messages import SaveRequestInfo
from shardkeep.store.request_watch import TRIES_LIMIT, HeardRequests


def info(
    number: int, state: Literal["none", "waiting", "saving", "done"] = "waiting", checkpoint: int | None = None
) -> SaveRequestInfo:
    return SaveRequestInfo(
        attempt_id=f"att_{1:032x}",
        number=number,
        state=state,
        requested_at=None,
        requested_by="somebody",
        checkpoint_id=None if checkpoint is None else f"ckp_{checkpoint:032x}",
    )


def test_each_request_makes_one_save_however_often_it_is_told() -> None:
    heard = HeardRequests()
    answers = [info(0, "none"), info(1), info(1), info(1, "saving", 1), info(1, "done", 1), info(4), info(4)]
    assert [heard.asks_for_save(answer) for answer in answers] == [False, True, False, False, False, True, False]
    assert heard.number == 4


def test_a_request_that_another_save_has_taken_up_already_makes_none() -> None:
    heard = HeardRequests()
    assert not heard.asks_for_save(info(1, "saving", 1))
    assert not heard.asks_for_save(info(2, "done", 2))
    assert heard.number == 2


def test_an_aborted_save_is_made_once_more_and_an_abort_counts_once() -> None:
    heard = HeardRequests()
    assert heard.asks_for_save(info(1))
    assert [heard.asks_for_save(info(1, "waiting", 7)) for _ in range(3)] == [True, False, False]
    assert not heard.asks_for_save(info(1, "saving", 8))
    assert heard.asks_for_save(info(1, "waiting", 8))


def test_a_request_that_every_save_fails_is_given_up_with_one_warning_and_the_next_one_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = HeardRequests()
    with caplog.at_level(logging.WARNING, logger="shardkeep"):
        asked = [heard.asks_for_save(info(1, "waiting", number or None)) for number in range(10)]
    assert asked == [True] * TRIES_LIMIT + [False] * (10 - TRIES_LIMIT)
    assert [record.message for record in caplog.records] == [
        f"the save that somebody asked for was aborted {TRIES_LIMIT} times; it is made with the next save that is due"
    ]
    assert heard.asks_for_save(info(2))


def test_a_service_that_lost_its_database_counts_anew() -> None:
    heard = HeardRequests()
    assert heard.asks_for_save(info(9))
    assert not heard.asks_for_save(info(0, "none"))
    assert heard.asks_for_save(info(1))
