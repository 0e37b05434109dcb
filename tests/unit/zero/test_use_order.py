"""The order in which units are used: what the last pass foretells, and when it foretells nothing."""

from __future__ import annotations

import pytest

from shardkeep.zero import use_order
from shardkeep.zero.use_order import UseOrder


def go(order: UseOrder, *units: int) -> list[int | None]:
    """What is foretold after each use of a new pass."""
    order.begin()
    found = []
    for unit in units:
        order.use(unit)
        found.append(order.next)
    return found


def test_a_first_pass_is_not_foretold_and_a_second_like_it_is() -> None:
    order = UseOrder()

    assert UseOrder().first is None
    assert go(order, 1, 2, 3) == [None, None, None]
    assert go(order, 1, 2, 3) == [2, 3, None]
    assert order.first == 1
    assert order.is_at_end


def test_a_unit_that_comes_twice_has_the_follower_of_its_place() -> None:
    order = UseOrder()
    go(order, 1, 2, 1, 3)

    assert go(order, 1, 2, 1, 3) == [2, 1, 3, None]


def test_uses_in_a_row_count_once() -> None:
    order = UseOrder()
    go(order, 1, 1, 2, 2, 2)

    assert go(order, 1, 2, 2) == [2, None, None]
    assert order.is_at_end


def test_a_pass_that_goes_another_way_is_not_foretold_any_more_but_foretells_the_next() -> None:
    order = UseOrder()
    go(order, 1, 2, 3)

    assert go(order, 1, 3, 3, 2) == [2, None, None, None]
    assert not order.is_at_end
    assert go(order, 1, 3, 2) == [3, 2, None]


def test_a_longer_pass_is_not_at_the_end_of_a_shorter() -> None:
    order = UseOrder()
    go(order, 1, 2)

    assert go(order, 1, 2, 3) == [2, None, None]
    assert not order.is_at_end


def test_beginning_again_without_a_use_changes_nothing() -> None:
    order = UseOrder()
    go(order, 1, 2)
    order.begin()
    order.begin()

    assert go(order, 1) == [2]


def test_a_pass_that_nobody_ends_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_order, "_LONGEST", 4)
    order = UseOrder()

    assert go(order, 1, 2, 1, 2, 1, 2, 1) == [None, None, None, None, 2, 1, 2]
