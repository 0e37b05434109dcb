"""Turns: a few at a time, a few more may wait, and the rest are told to come back."""

from __future__ import annotations

import threading

import pytest

from shardkeep_service.checkpoints.turns import Turns
from shardkeep_service.errors import Refusal


def test_beyond_the_places_one_is_told_to_come_back_at_once() -> None:
    turns = Turns(limit=1, waiting=0)

    with turns.turn(), pytest.raises(Refusal) as refused, turns.turn():
        pass

    assert (refused.value.code, refused.value.retryable) == ("busy", True)
    with turns.turn():
        pass


def test_who_waits_in_vain_is_told_so_and_leaves_the_place_to_others() -> None:
    turns = Turns(limit=1, waiting=1, wait_seconds=0.01)

    for _ in range(3):
        with turns.turn(), pytest.raises(Refusal), turns.turn():
            pass


def test_a_turn_that_fails_is_given_back() -> None:
    turns = Turns(limit=1, waiting=0)
    with pytest.raises(ZeroDivisionError), turns.turn():
        raise ZeroDivisionError

    with turns.turn():
        pass


def test_who_waits_gets_the_turn_once_it_is_free() -> None:
    turns = Turns(limit=1, waiting=1, wait_seconds=60)
    done: list[int] = []

    def take() -> None:
        with turns.turn():
            done.append(1)

    with turns.turn():
        waiter = threading.Thread(target=take)
        waiter.start()
        assert done == []
    waiter.join(60)

    assert done == [1]
