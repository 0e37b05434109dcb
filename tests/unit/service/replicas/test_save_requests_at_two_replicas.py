"""Requests to save at two replicas on one PostgreSQL: asked at one, heard and taken up at the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

from shardkeep.protocol import routes
from tests.unit.service.replicas.at_once import at_once
from tests.unit.service.training import Training
from tests.waiting import wait_until

Replicas: TypeAlias = tuple[Training, Training]


def test_a_poll_hears_of_a_request_that_was_made_at_the_other_replica(replicas: Replicas) -> None:
    first, second = replicas
    attempt = first.start(fresh=True)
    poll = partial(first.service.ask, "GET", routes.path(routes.ATTEMPT_SAVE_REQUEST, attempt=attempt))
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(poll, query={"known": 0, "wait_seconds": 25})
        wait_until(lambda: f"save-request:{attempt}" in first.service.context.board._async_waiters, seconds=20)
        asked = second.service.ask("POST", second.path(routes.RUN_SAVE_REQUEST))
        assert heard.result(30) == asked


def test_asking_at_both_replicas_while_ranks_open_makes_one_request_that_one_checkpoint_takes_up(
    replicas: Replicas,
) -> None:
    first, second = replicas
    attempt = first.start(4, fresh=True)
    for save in range(1, 6):
        before = first.service.ask("GET", first.path(routes.RUN_SAVE_REQUEST))["number"]
        asking = [partial(each.service.ask, "POST", each.path(routes.RUN_SAVE_REQUEST)) for each in replicas * 2]
        opening = [
            partial(replicas[rank % 2].open, attempt, save=save, step=save, rank=rank, world_size=4)
            for rank in range(4)
        ]
        answers = at_once(*asking, *opening)
        checkpoint = answers[-1]["checkpoint_id"]
        found = second.service.ask("GET", second.path(routes.RUN_SAVE_REQUEST))
        numbers = {answer["number"] for answer in answers[:4]}
        assert numbers <= {before, before + 1, before + 2}
        assert found["number"] == max(numbers)
        assert (found["state"], found["checkpoint_id"]) in (("saving", checkpoint), ("waiting", None))
        state = first.finish(checkpoint, first.pack_all(save, 4))
        assert state["state"] == "committed"
