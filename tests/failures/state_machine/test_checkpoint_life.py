"""The life of checkpoints under random sequences of requests, races and lost time, against a pure model.

The service is the real application over a real database, SQLite or PostgreSQL, and directory; its clock is moved by
hand.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import structlog
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.failures.state_machine.life import DEADLINE_SECONDS, LEASE_SECONDS, Life
from tests.servers.migrated_databases import MigratedDatabases
from tests.unit.service.local_service import LocalService
from tests.unit.service.runs.run_sums import counted_sums, kept_sums


class CheckpointLife(RuleBasedStateMachine):
    """One rule picks among the actions that are possible now, by weight: rules picked evenly mostly do nothing."""

    service: ClassVar[LocalService]
    postgres_service: ClassVar[LocalService]
    examples: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        CheckpointLife.examples += 1
        self.life = Life(self.own_service(), f"life-{self.examples}")

    def own_service(self) -> LocalService:
        """The one that this machine drives."""
        return self.service

    def teardown(self) -> None:
        """Leaves nothing open that would expire in the next example."""
        self.life.training.begin()

    @rule(choice=st.integers(0, 1_000_000), index=st.integers(0, 1000), rank=st.integers(0, 2), step=st.integers(0, 6))
    def act(self, choice: int, index: int, rank: int, step: int) -> None:
        actions = self.life.actions()
        action = actions[choice % len(actions)]
        note(f"{action.__name__}({index}, {rank}, {step})")
        action(index, rank, step)

    @invariant()
    def latest_is_the_highest_sequence_on_the_line(self) -> None:
        self.life.latest_is_the_highest_sequence_on_the_line()

    @invariant()
    def the_service_knows_what_the_model_knows(self) -> None:
        self.life.the_service_knows_what_the_model_knows()

    @invariant()
    def the_sums_of_runs_are_those_of_a_count(self) -> None:
        with self.life.service.database.read() as session:
            assert kept_sums(session) == counted_sums(session)

    @invariant()
    def what_was_committed_is_all_there(self) -> None:
        self.life.what_was_committed_is_all_there()

    @invariant()
    def what_is_committed_loads_bit_equal(self) -> None:
        self.life.what_is_committed_loads_bit_equal()


class CheckpointLifeOnPostgres(CheckpointLife):
    """The same rules and invariants, where transactions are not serialised for us."""

    def own_service(self) -> LocalService:
        return self.postgres_service


@pytest.fixture(scope="module", autouse=True)
def services(tmp_path_factory: pytest.TempPathFactory, migrated_databases: MigratedDatabases) -> Iterator[None]:
    """One service of each kind for all examples; each has a project of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    times: dict[str, Any] = {"lease_seconds": LEASE_SECONDS, "open_deadline_seconds": DEADLINE_SECONDS}
    with (
        migrated_databases.database() as url,
        LocalService(tmp_path_factory.mktemp("life"), **times) as CheckpointLife.service,
        LocalService(tmp_path_factory.mktemp("life"), database_url=url, **times) as CheckpointLife.postgres_service,
    ):
        yield
    structlog.reset_defaults()


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking against a real service takes minutes
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


TestCheckpointLife = CheckpointLife.TestCase
TestCheckpointLife.settings = _settings(16)
TestCheckpointLifeOnPostgres = CheckpointLifeOnPostgres.TestCase
TestCheckpointLifeOnPostgres.settings = _settings(6)
