"""A rebuild beside a live service locks runs before their checkpoints, as everybody does, so that neither deadlocks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from shardkeep.protocol import routes
from shardkeep_service.catalogue.commit_records import delete_records
from shardkeep_service.catalogue.rebuilding.rebuild import rebuild
from shardkeep_service.database.database import Database
from tests.unit.service.catalogue.lives import Lives
from tests.unit.service.databases import POSTGRESQL
from tests.unit.service.training import Training

pytestmark = pytest.mark.parametrize("database_kind", [POSTGRESQL], indirect=True)

_LOCK = re.compile(r"FROM (runs|checkpoints)\b.* FOR (?:NO KEY )?UPDATE", re.DOTALL)
_FLIP = re.compile(r"^UPDATE checkpoints SET .*\bstate=", re.DOTALL)


@contextlib.contextmanager
def locked_first(database: Database) -> Iterator[list[list[str]]]:
    """For each transaction that changes the state of a checkpoint, what it locked, in order; `flip` is that change."""
    transactions: list[list[str]] = []
    present: dict[Any, list[str]] = {}

    def note(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        steps = present.setdefault(connection.connection.dbapi_connection, [])
        locked = _LOCK.search(statement)
        if locked is not None:
            steps.append(locked[1])
        if _FLIP.search(statement):
            steps.append("flip")

    def end(connection: Any) -> None:
        steps = present.pop(connection.connection.dbapi_connection, [])
        if "flip" in steps:
            transactions.append(steps)

    event.listen(database.engine, "before_cursor_execute", note)
    event.listen(database.engine, "commit", end)
    yield transactions


def test_a_checkpoint_that_was_open_in_the_backup_is_committed_under_the_lock_of_its_run(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        checkpoint = training.open_all(training.start(), save=1, step=10)
    backup = lives.backup()
    with lives.service() as service:
        training = Training(service)
        assert training.finish(checkpoint, training.pack_all(10))["state"] == "committed"

    lives.url = backup
    with lives.context() as context, locked_first(context.database) as transactions:
        assert rebuild(context, add=True).checkpoints == 1

    assert [steps[0] for steps in transactions] == ["runs"]


def test_what_was_purged_after_the_backup_is_purged_under_the_lock_of_its_run(lives: Lives) -> None:
    with lives.service() as service:
        training = Training(service)
        attempt = training.start()
        first, _ = (training.save(attempt, save=save, step=save) for save in (1, 2))
        project = str(service.ask("GET", training.path(routes.PROJECT))["id"])
    backup = lives.backup()
    with lives.context() as context:
        delete_records(context, project, first)
    store = lives.blob_store
    store.delete([blob.key for blob in store.list(f"{project}/") if first in blob.key])

    lives.url = backup
    with lives.context() as context, locked_first(context.database) as transactions:
        assert rebuild(context, add=True).purged == 1

    assert [steps[0] for steps in transactions] == ["runs"]
