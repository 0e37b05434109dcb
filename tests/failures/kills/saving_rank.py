"""One rank that saves one step of a made-up state, without torch; the kill tests run it in processes they kill."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection

import shardkeep as sk
from shardkeep.errors import ShardkeepError
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.format.values import encode_value
from shardkeep.store.world import World
from tests.failures.kills.made_up_state import NAMES, ROWS, SHAPE, rows_of


@dataclass(frozen=True, slots=True)
class RankTask:
    """What one rank of a job does, and through which address."""

    url: str
    token: str
    run: str
    step: int
    world: World


def save(task: RankTask) -> str:
    """Saves and waits; the committed checkpoint's id."""
    world = task.world
    with sk.connect(task.url, task.token, retry_seconds=100) as client:
        attempt = client.run(task.run).begin_attempt(world)
        attempt.decide_resume()
        rows = ROWS // world.world_size
        region = Region((world.rank * rows, 0), (rows, SHAPE[1]))
        writer = attempt.start_save(task.step, expected_bytes=len(NAMES) * rows * SHAPE[1] * 4)
        for name, kind in zip(NAMES, (SliceKind.PARAMETER, SliceKind.OPTIMIZER), strict=True):
            raw = memoryview(rows_of(name, task.step, world.rank * rows, rows).tobytes())

            def fill(start: int, out: memoryview, raw: memoryview = raw) -> None:
                out[:] = raw[start : start + len(out)]

            writer.stage(name, "float32", SHAPE, region, kind, fill=fill)
        values = [ValueRecord("step", encode_value(task.step), per_rank=False)]
        return writer.finish(values, {"loss": 1.0 / task.step}, {}).wait(timeout_seconds=110).id


def save_and_tell(task: RankTask, answer: Connection) -> None:
    """`save` for a process of its own: sends `committed <id>` or `failed <error>`."""
    try:
        answer.send(f"committed {save(task)}")
    except ShardkeepError as error:
        answer.send(f"failed {type(error).__name__}: {error}")
