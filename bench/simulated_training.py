"""The requests of simulated ranks, in the order and with the long polls of the real client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlencode

from bench.connections import Connection, Traffic
from bench.phases import PhaseMeter
from bench.running_service import Service
from bench.simulated_checkpoint import STEP, Scale, SimulatedRank, as_json
from shardkeep.format.load_plan import decode_load_plan, decode_load_request
from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_launch_id

PROJECT, RUN = "bench", "metadata"
_POLL_SECONDS = 25
_PLANS_CHECKED = 3


async def make_run(service: Service) -> tuple[str, str]:
    """Ids of the project and the run, made now."""
    connection = Connection(service.port, service.token, Traffic())
    run = await connection.ask("PUT", routes.path(routes.RUN, project=PROJECT, run=RUN))
    projects = await connection.ask("GET", routes.PROJECTS)
    connection.close()
    return str(projects["items"][0]["id"]), str(run["id"])


async def commit(service: Service, scale: Scale, ranks: Sequence[SimulatedRank], meter: PhaseMeter) -> str:
    """The id of the checkpoint, once every rank knows that it is committed."""
    connections = [Connection(service.port, service.token, meter.traffic) for _ in ranks]
    attempt = await _begin_attempt(connections[0], scale)
    with meter.phase("open"):
        opened = await asyncio.gather(
            *(_open(connection, attempt, scale, rank.rank) for connection, rank in zip(connections, ranks, strict=True))
        )
    checkpoint = opened[0]
    with meter.phase("negotiate"):
        path = routes.path(routes.NEGOTIATE, checkpoint=checkpoint)
        answers = await asyncio.gather(
            *(connection.ask("POST", path, rank.offers) for connection, rank in zip(connections, ranks, strict=True))
        )
    if not all(chunk["present"] for answer in answers for chunk in answer["chunks"]):
        raise SystemExit("a seeded chunk is not present")
    await _hand_in_all(connections, ranks, checkpoint, meter)
    for connection in connections:
        connection.close()
    return checkpoint


async def plan_all(service: Service, checkpoint: str, requests: Sequence[bytes], meter: PhaseMeter) -> None:
    """The load plans: the first alone, by which the service reads the index, then all at once."""
    connections = [Connection(service.port, service.token, meter.traffic) for _ in requests]
    path = routes.path(routes.LOAD_PLAN, checkpoint=checkpoint)
    with meter.phase("first plan"):
        await connections[0].send("POST", path, requests[0])
    with meter.phase("plans"):
        plans = await asyncio.gather(
            *(connection.send("POST", path, body) for connection, body in zip(connections, requests, strict=True))
        )
    for number in range(0, len(plans), max(len(plans) // _PLANS_CHECKED, 1)):
        decode_load_plan(plans[number]).check(decode_load_request(requests[number]))
    for connection in connections:
        connection.close()


async def _begin_attempt(connection: Connection, scale: Scale) -> str:
    body = as_json({"launch_id": new_launch_id(), "ordinal": 0, "world_size": scale.ranks})
    attempt = await connection.ask("POST", routes.path(routes.RUN_ATTEMPTS, project=PROJECT, run=RUN), body)
    await connection.ask("POST", routes.path(routes.RESUME, attempt=attempt["id"]), as_json({"fresh": True}))
    return str(attempt["id"])


async def _open(connection: Connection, attempt: str, scale: Scale, rank: int) -> str:
    body = as_json({"save": 0, "step": STEP, "rank": rank, "world_size": scale.ranks})
    path = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt)
    return str((await connection.ask("POST", path, body))["checkpoint_id"])


async def _hand_in_all(
    connections: Sequence[Connection], ranks: Sequence[SimulatedRank], checkpoint: str, meter: PhaseMeter
) -> None:
    arrived = asyncio.Semaphore(0)
    committed = asyncio.Event()

    async def hand_in(connection: Connection, rank: SimulatedRank) -> None:
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=rank.rank)
        state = await connection.ask("PUT", path, rank.manifest, content_type="application/octet-stream")
        arrived.release()
        while state["state"] in {"open", "validating"}:
            query = {"known": state["state"], "arrived": state["arrived"], "rank": rank.rank}
            path = f"{routes.path(routes.STATE, checkpoint=checkpoint)}?{urlencode(query)}&wait_seconds={_POLL_SECONDS}"
            state = await connection.ask("GET", path)
        if state["state"] != "committed":
            raise SystemExit(f"the checkpoint was not committed: {state}")
        committed.set()
        assert state["checkpoint"]["id"] == checkpoint

    meter.begin()
    async with asyncio.TaskGroup() as group:
        for connection, rank in zip(connections, ranks, strict=True):
            group.create_task(hand_in(connection, rank))
        for _ in ranks:
            await arrived.acquire()
        meter.end("manifests")
        await committed.wait()
        meter.end("validate, commit")
    meter.end("tell ranks")
