"""Every way in which one save and one pass of collection can cross: each cut after any of its steps by the other.

What is saved is dead and old at first: stored by a save that was aborted, claimed longer ago than the horizon, and in
some cases condemned already. So each cut is one where collection would like to take what the save is about to name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from shardkeep_service.blob_store.errors import BlobExists
from shardkeep_service.checkpoints.expiry import expire_checkpoints
from shardkeep_service.database.migrate import upgrade
from shardkeep_service.errors import Refusal
from shardkeep_service.garbage_collection.collector import steps
from tests.failures.collection.actors import careless_saving, saving
from tests.failures.collection.database_copies import Copy, put_copy, take_copy
from tests.failures.collection.world import World
from tests.servers.migrated_databases import MigratedDatabases
from tests.unit.service.local_service import ShiftedDatabase

NUMBERS = (1, 2)
EVERY = int(os.environ.get("SHARDKEEP_TEST_CROSSINGS_EVERY", "29"))
"""Of the crossings that cut both, one in so many is run: all of them take minutes."""
Saving = Callable[..., Iterator[None]]


@dataclass(slots=True)
class Beginning:
    """A state of the world that every crossing begins at."""

    world: World
    rows: Copy
    objects: dict[str, bytes]
    ahead_micros: int

    def again(self) -> World:
        put_copy(self.world.database, self.rows)
        self.world.store._objects = dict(self.objects)
        self.world.store.late.clear()
        self.world.database.ahead_micros = self.ahead_micros
        self.world.jobs[0].saves = 1
        return self.world


def begin(database: ShiftedDatabase, directory: Path, *, condemned: bool) -> Beginning:
    """Both chunks of `NUMBERS` are stored, dead and old; some passes have seen them."""
    world = World(database, directory)
    job = world.jobs[0]
    dead = saving(world.service, job, NUMBERS, 1, lambda _: None)
    for _ in range(12):
        next(dead)
    world.advance(1100)
    expire_checkpoints(world.context)
    world.advance(1000 if condemned else 600)
    if condemned:
        run_on(steps(world.context))
        world.advance(600)
    else:
        world.advance(300)
    return Beginning(world, take_copy(database), world.store.content(), database.ahead_micros)


def run_on(actor: Iterator[object], steps_at_most: int = 10_000) -> int:
    """Steps taken until its end, or so many."""
    for taken in range(steps_at_most):
        try:
            next(actor)
        except (StopIteration, Refusal, BlobExists):
            return taken
    return steps_at_most


def cross(beginning: Beginning, how: Saving, *, save_steps: int, pass_steps: int, save_first: bool) -> bool:
    """One crossing; whether the save committed."""
    world = beginning.again()
    done: list[str] = []
    save = how(world.service, world.jobs[0], NUMBERS, 2, done.append)
    collection: Iterator[object] = steps(world.context)
    first, second = [(save, save_steps), (collection, pass_steps)][:: 1 if save_first else -1]
    run_on(*first)
    run_on(*second)
    run_on(first[0])
    run_on(second[0])
    while world.store.late:
        world.store.arrive(0)
    world.check()
    return bool(done)


def cross_all(database: ShiftedDatabase, directory: Path, how: Saving, *, condemned: bool, every: int) -> None:
    beginning = begin(database, directory, condemned=condemned)
    world = beginning.again()
    save_length = run_on(how(world.service, world.jobs[0], NUMBERS, 2, lambda _: None))
    pass_length = run_on(steps(beginning.again().context))
    whole = 10_000
    cuts = [(whole, pass_steps, False) for pass_steps in range(pass_length + 1)]  # a whole save within the pass
    cuts += [(save_steps, whole, True) for save_steps in range(save_length + 1)]  # a whole pass within the save
    both = [
        (save_steps, pass_steps, save_first)
        for save_steps in range(save_length + 1)
        for pass_steps in range(pass_length + 1)
        for save_first in (False, True)
    ]
    committed = sum(
        cross(beginning, how, save_steps=save_steps, pass_steps=pass_steps, save_first=save_first)
        for save_steps, pass_steps, save_first in [*cuts, *both[::every]]
    )
    assert committed > 0, "no save ever committed: the crossings say nothing"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("how", [saving, careless_saving])
@pytest.mark.parametrize("condemned", [False, True])
def test_crossings_on_sqlite(tmp_path: Path, how: Saving, condemned: bool) -> None:
    database = ShiftedDatabase(f"sqlite:///{tmp_path / 'x.db'}")
    upgrade(database)
    cross_all(database, tmp_path, how, condemned=condemned, every=EVERY)
    database.close()


@pytest.mark.parametrize("condemned", [False, True])
def test_crossings_on_postgresql(tmp_path: Path, condemned: bool, migrated_databases: MigratedDatabases) -> None:
    with migrated_databases.database() as url:
        database = ShiftedDatabase(url)
        cross_all(database, tmp_path, saving, condemned=condemned, every=2 * EVERY + 1)
        database.close()
