"""Inventories: owners are told once every rank has posted, and never computed from two truths."""

from __future__ import annotations

import threading
from typing import Any

from shardkeep.protocol import routes
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Training
from tests.waiting import wait_until

pytestmark = BOTH_DATABASES

PLAIN: dict[str, Any] = {"name": "a", "dtype": "float32", "shape": [4], "kind": 0}


def _path(attempt: str, rank: int, layout: int = 0) -> str:
    return routes.path(routes.INVENTORY, attempt=attempt, layout=layout, rank=rank)


def _post(training: Training, attempt: str, rank: int, *tensors: dict[str, Any], layout: int = 0) -> dict[str, Any]:
    return training.service.ask("PUT", _path(attempt, rank, layout), {"tensors": list(tensors)})


def test_the_last_rank_to_post_learns_the_owners_at_once_and_the_others_by_waiting(training: Training) -> None:
    attempt = training.begin(2)
    first = _post(training, attempt, 0, PLAIN)
    waited: list[dict[str, Any]] = []
    waiter = threading.Thread(
        target=lambda: waited.append(training.service.ask("GET", _path(attempt, 0), query={"wait_seconds": 30}))
    )
    waiter.start()
    wait_until(lambda: training.service.context.metrics.requests_in_progress._value.get() == 1, seconds=20)

    last = _post(training, attempt, 1, PLAIN)
    waiter.join(20)

    assert (first["complete"], first["waiting_for"]) == (False, [1])
    assert last == {"complete": True, "waiting_for": [], "holders": [2], "position": [1], "owner": [0]}
    assert waited == [{"complete": True, "waiting_for": [], "holders": [2], "position": [0], "owner": [0]}]


def test_E164_posting_again_is_fine_and_posting_something_else_is_not(training: Training) -> None:
    attempt = training.begin(2)
    _post(training, attempt, 0, PLAIN)

    assert _post(training, attempt, 0, PLAIN)["waiting_for"] == [1]
    body = {"tensors": [{**PLAIN, "shape": [5]}]}
    training.service.refused("inventory_disagrees", "PUT", _path(attempt, 0), body)
    _post(training, attempt, 0, {**PLAIN, "shape": [5]}, layout=1)


def test_ranks_that_hold_one_name_differently_are_both_named(training: Training) -> None:
    for code, other in (("shape_disagrees", {"shape": [5]}), ("dtype_disagrees", {"dtype": "int8"})):
        attempt = training.begin(2)
        _post(training, attempt, 0, PLAIN)

        problem = training.service.refused(code, "PUT", _path(attempt, 1), {"tensors": [{**PLAIN, **other}]})
        training.service.refused(code, "GET", _path(attempt, 0))

        assert problem["ranks"] == [0, 1]
        assert problem["tensors"] == ["a"]


def test_E41_E96_a_rank_that_holds_nothing_posts_an_empty_inventory(training: Training) -> None:
    attempt = training.begin(2)
    _post(training, attempt, 0, PLAIN)

    assert _post(training, attempt, 1)["owner"] == []
    assert training.service.ask("GET", _path(attempt, 0))["holders"] == [1]


def test_inventories_that_cannot_be_are_refused(training: Training) -> None:
    attempt = training.begin(2)
    service = training.service

    service.refused("rank_out_of_range", "PUT", _path(attempt, 2), {"tensors": []})
    for tensors in (
        [PLAIN, PLAIN],
        [{**PLAIN, "name": "b"}, PLAIN],
        [{**PLAIN, "dtype": "float31"}],
        [{**PLAIN, "kind": 99}],
        [{**PLAIN, "name": "bad\\escape"}],
    ):
        service.refused("malformed_request", "PUT", _path(attempt, 0), {"tensors": tensors})


def test_a_fenced_attempt_posts_no_inventory(training: Training) -> None:
    attempt = training.begin(2)
    training.begin(2)

    training.service.refused("attempt_fenced", "PUT", _path(attempt, 0), {"tensors": []})
