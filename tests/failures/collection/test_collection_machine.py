"""Collection beside writers, readers, retention, deletes, deaths, late requests and a restored old database.

Everything is taken apart into its transactions and store requests, and hypothesis orders them, with any time between.
No live byte is ever gone; every dead one goes in the end. On both databases.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import structlog
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from shardkeep_service.database.migrate import upgrade
from tests.failures.collection.world import World
from tests.servers.migrated_databases import MigratedDatabases
from tests.unit.service.local_service import ShiftedDatabase


class CollectionMachine(RuleBasedStateMachine):
    """One rule picks among the actions by weight."""

    database: ClassVar[ShiftedDatabase]
    directory: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.database, self.directory)

    @rule(choice=st.integers(0, 1_000_000), index=st.integers(0, 1000), number=st.integers(0, 15))
    def act(self, choice: int, index: int, number: int) -> None:
        actions = self.world.actions()
        action = actions[choice % len(actions)]
        note(f"{action.__name__}({index}, {number})")
        action(index, number)

    @invariant()
    def no_live_byte_is_gone(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.check_ends_clean()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def run_machine(examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(CollectionMachine, settings=chosen)


def test_collection_on_sqlite(tmp_path: Path) -> None:
    database = CollectionMachine.database = ShiftedDatabase(f"sqlite:///{tmp_path / 'x.db'}")
    CollectionMachine.directory = tmp_path
    upgrade(database)
    run_machine(10, 70)
    database.close()


def test_collection_on_postgresql(tmp_path: Path, migrated_databases: MigratedDatabases) -> None:
    with migrated_databases.database() as url:
        database = CollectionMachine.database = ShiftedDatabase(url)
        CollectionMachine.directory = tmp_path
        run_machine(6, 70)
        database.close()
