"""The sums of runs are those of a count of their checkpoints, whatever changes them and whoever does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import delete, insert, text, update
from sqlalchemy.orm import Session

from shardkeep.protocol import routes
from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.database.database import Database
from tests.unit.service.databases import BOTH_DATABASES, POSTGRESQL
from tests.unit.service.local_service import LocalService
from tests.unit.service.rows import Place, add_place
from tests.unit.service.runs.run_sums import Sums, counted_sums, kept_sums
from tests.unit.service.training import Training

STATES = [state.value for state in CheckpointState]


def checked_sums(database: Database) -> Sums:
    """The sums that are kept, which are those of a count."""
    with database.read() as session:
        kept = kept_sums(session)
        assert kept == counted_sums(session)
    return kept


@BOTH_DATABASES
def test_sums_follow_any_change_of_any_rows(database: Database) -> None:
    """Also one that no part of the service makes: an older one, or an operator, writes what it knows of."""
    chance = random.Random(7)
    places = [add_place(database, run=f"run-{number}", state=CheckpointState.COMMITTED) for number in range(3)]
    seen: set[tuple[Any, ...]] = set()
    for turn in range(200):
        with database.write() as session:
            for _ in range(chance.randrange(1, 4)):
                _change(session, chance, places, turn)
        seen.update(checked_sums(database).values())
    assert len(seen) > 100
    assert max(committed for committed, *_ in seen) >= 4


def _change(session: Session, chance: random.Random, places: list[Place], turn: int) -> None:
    place = chance.choice(places)
    mine = Checkpoint.run_id == place.run_id
    some = Checkpoint.number % chance.randrange(1, 4) == 0
    values: dict[str, Any] = chance.choice(
        [
            {"state": chance.choice(STATES)},
            {"state": CheckpointState.COMMITTED.value, "committed_at": turn, "new_bytes": turn},
            {"new_bytes": chance.choice([None, turn]), "raw_bytes": 1 << 50, "stored_bytes": turn * 3},
            {"step": turn},
            {"pinned": chance.random() < 0.5, "version": turn},
        ]
    )
    match chance.randrange(5):
        case 0:
            number = session.query(Checkpoint).where(mine).count() + 1000 * (turn + 1)
            _insert(session, place, number=number, state=chance.choice(STATES))
        case 1 if chance.random() < 0.4:
            session.execute(delete(Checkpoint).where(mine, some, Checkpoint.id != place.checkpoint_id))
        case _:
            session.execute(update(Checkpoint).where(mine, some).values(**values))


def _insert(session: Session, place: Place, *, number: int, state: str) -> None:
    session.execute(
        insert(Checkpoint).values(
            id=f"ckp_{number}_{session.query(Checkpoint).count()}", project_id=place.project_id, run_id=place.run_id,
            attempt_id=place.attempt_id, number=number, sequence=number, save=number, step=number, world_size=1,
            state=state, opened_at=number, deadline=number, committed_at=number, new_bytes=number, metrics={},
            environment={},
        )
    )  # fmt: skip


@BOTH_DATABASES
def test_sums_follow_the_life_of_checkpoints_and_of_their_run(local: LocalService, training: Training) -> None:
    attempt = training.start()
    saved = [training.save(attempt, save=number, step=10 * number) for number in (1, 2, 3)]
    training.open_all(attempt, save=4, step=40)
    [(run_id, whole)] = checked_sums(local.database).items()
    assert whole[0] == 3
    assert whole[4:6] == (saved[2], 30)

    training.change("DELETE", routes.CHECKPOINT, saved[2])
    assert checked_sums(local.database)[run_id][4:6] == (saved[1], 20)
    training.change("POST", routes.RESTORE, saved[2])
    assert checked_sums(local.database)[run_id] == whole

    path = routes.path(routes.RUN_BY_ID, run=run_id)
    deleted = local.ask("DELETE", path, headers={"if-match": '"1"'}, query={"force": True})
    assert checked_sums(local.database)[run_id] == (0, 0, 0, 0, None, None, None)
    again = {"if-match": f'"{deleted["version"]}"'}
    local.ask("POST", routes.path(routes.RUN_RESTORE, run=run_id), headers=again)
    assert checked_sums(local.database)[run_id] == whole

    local.ask("PUT", training.path(routes.RUN_RETENTION), {"keep_last": 1})
    local.ask("POST", training.path(routes.RUN_RETENTION_APPLY))
    assert checked_sums(local.database)[run_id][0] == 1


@BOTH_DATABASES
def test_the_last_checkpoint_is_that_of_the_highest_sequence_whatever_its_step(
    local: LocalService, training: Training
) -> None:
    training.save(training.start(), save=1, step=500)
    rolled_back = training.save(training.start(fresh=True), save=1, step=100)

    [sums] = checked_sums(local.database).values()
    assert sums[4:6] == (rolled_back, 100)


@pytest.mark.parametrize("database_kind", [POSTGRESQL], indirect=True)
def test_a_statement_changes_a_run_once_or_not_at_all_however_many_of_its_checkpoints_it_changes(
    database: Database,
) -> None:
    """Each change makes a version of the run's row, and each later one of the transaction walks past all of them."""
    place = add_place(database, state=CheckpointState.COMMITTED)
    mine = Checkpoint.run_id == place.run_id
    with database.write() as session:
        for number in range(2, 40):
            _insert(session, place, number=number, state=CheckpointState.COMMITTED.value)

    def updates(session: Session) -> int:
        counter = "SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'runs'"
        return int(session.execute(text(counter)).scalar_one())

    written: list[int] = []
    with database.write() as session:
        for values in ({"state": "deleted"}, {"state": "committed"}, {"scrubbed_at": 7, "pinned": True}):
            before = updates(session)
            session.execute(update(Checkpoint).where(mine).values(**values))
            written.append(updates(session) - before)

    assert written == [2, 2, 0], "the sums, and the last one, in a statement each"
    assert [sums[0] for sums in checked_sums(database).values()] == [39]
