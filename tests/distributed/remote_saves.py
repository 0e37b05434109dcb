"""What ranks do in test_remote_saves.py. Asking is rank 0's part here: it is the one that hears of it."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

import torch.distributed as dist

import shardkeep as sk
import shardkeep.pytorch as skt
from shardkeep.connection.transport import HttpAnswer, HttpRequest, Transport
from shardkeep.errors import AttemptFenced
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep.pytorch.checkpointer import Checkpointer
from shardkeep.store.world import World
from tests.waiting import wait_until


def ask(run: str, keeper: Checkpointer, *, times: int = 1) -> None:
    """Ask at the service as anybody would, and wait until this rank's keeper has heard of it."""
    before = keeper._wishes._asked
    with sk.connect(os.environ["SHARDKEEP_URL"], os.environ["SHARDKEEP_TOKEN"]) as client:
        for _ in range(times):
            client.run(run).request_save()
    wait_until(lambda: keeper._wishes._asked != before)


def save_when_asked(rank: int, world_size: int, *, run: str) -> dict[str, Any]:
    """Asked for three times before step 3, and once before step 7, where a save is due."""
    with skt.Checkpointer(run, loop={"n": 0}, signals=False, every_steps=7) as keeper:
        keeper.resume()
        watching = [thread.name for thread in threading.enumerate() if thread.name == "shardkeep-requests"]
        for n in range(1, 11):
            if rank == 0 and n in (3, 7):
                ask(run, keeper, times=3 if n == 3 else 1)
            dist.barrier()
            keeper.step(n)
            if n == 7:
                keeper.wait()
        return {"watching": len(watching), "failures": len(keeper.failures)}


def ask_while_a_save_is_in_flight(rank: int, world_size: int, *, run: str) -> list[int]:
    """Rank 1 hands its part of step 1 in only once somebody has asked for another save."""
    call = Transport.call

    def late_call(self: Transport, request: HttpRequest, **options: Any) -> HttpAnswer:
        if rank == 1 and "/manifests/" in request.url:
            wait_until_asked(run)
        return call(self, request, **options)

    Transport.call = late_call  # type: ignore[method-assign]
    try:
        with skt.Checkpointer(run, loop={"n": 0}) as keeper:
            keeper.resume()
            keeper.save(1)
            if rank == 0:
                ask(run, keeper)
            dist.barrier()
            for n in range(2, 6):
                keeper.step(n)
            return [failed.step for failed in keeper.failures]
    finally:
        Transport.call = call  # type: ignore[method-assign]


def wait_until_asked(run: str) -> None:
    with sk.connect(os.environ["SHARDKEEP_URL"], os.environ["SHARDKEEP_TOKEN"]) as client:
        wait_until(lambda: client.run(run).save_request().number > 0)


def go_on_after_the_fence(rank: int, world_size: int, *, run: str) -> str:
    """Another launch begins an attempt; the poll of this one ends, training goes on until its own next save."""
    keeper = skt.Checkpointer(run, loop={"n": 0})
    keeper.resume()
    dist.barrier()
    if rank == 0:
        with sk.connect(os.environ["SHARDKEEP_URL"], os.environ["SHARDKEEP_TOKEN"]) as client:
            client.run(run).begin_attempt(World(0, 1, new_launch_id()))
            client.run(run).request_save()
        wait_until(lambda: keeper._watch is None or not keeper._watch.is_alive)
    dist.barrier()
    for n in range(1, 5):
        assert keeper.step(n) is False
    try:
        keeper.save(5)
    except AttemptFenced:
        return "fenced"
    finally:
        with contextlib.suppress(AttemptFenced):
            keeper.close()
    return "saved"
