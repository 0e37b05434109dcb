"""A beat or poll beside the end of its checkpoint; only a database with several writers shows it."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from sqlalchemy.orm import Session

from shardkeep.protocol import routes
from shardkeep_service.checkpoints import sessions
from tests.unit.service.databases import POSTGRESQL
from tests.unit.service.training import Training


@pytest.mark.parametrize("database_kind", [POSTGRESQL], indirect=True)
def test_a_beat_that_the_end_of_its_checkpoint_overtakes_is_told_of_it(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sessions go with the end: were the state read before them, the rank would be told that it never opened."""
    attempt = training.start(2)
    checkpoint = training.open(attempt, save=1, step=10, rank=0)["checkpoint_id"]
    renew = sessions.renew

    def renew_late(session: Session, checkpoint_id: str, ranks: Collection[int], *, lease_until: int) -> set[int]:
        monkeypatch.setattr(sessions, "renew", renew)
        body = {"rank": 0, "reason": "overtakes"}
        training.service.ask("POST", routes.path(routes.ABORT, checkpoint=checkpoint), body)
        return renew(session, checkpoint_id, ranks, lease_until=lease_until)

    monkeypatch.setattr(sessions, "renew", renew_late)
    answer = training.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=0))

    assert answer["state"] == "aborted"
    assert "overtakes" in answer["abort"]["reason"]
