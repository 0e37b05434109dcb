"""`shardkeep accept`, and `rm` of what nobody accepts, after a rebuild of the catalogue."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sqlalchemy import update

from shardkeep.errors import CheckpointNotCommitted
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.database.database import Database
from tests.integration.cli.command_line import CommandLine


def unconfirmed(shardkeep: CommandLine, run: str) -> str:
    """The id of a checkpoint as a rebuild leaves what is whole and has no record of its commit."""
    with shardkeep.client() as client:
        saved = client.run(run).save(1, {"w": np.arange(4, dtype=np.float32)}).wait(60)
    database = Database(f"sqlite:///{shardkeep.service.data_dir / 'shardkeep.db'}")
    with database.write() as session:
        session.execute(
            update(Checkpoint).where(Checkpoint.id == saved.id).values(state="unconfirmed", committed_at=None)
        )
    database.close()
    return str(saved.id)


def test_accept_commits_it_by_id_or_by_step_and_says_so_when_it_was(shardkeep: CommandLine) -> None:
    checkpoint = unconfirmed(shardkeep, "accepting/run")
    assert "unconfirmed" in shardkeep.ok("show", checkpoint).out
    assert shardkeep("accept", "accepting/run").code == 2, "it is never the latest"

    accepted = json.loads(shardkeep.ok("accept", "accepting/run@1", "--json").out)

    assert accepted["checkpoint"]["state"] == "committed"
    assert "already" in shardkeep.ok("accept", checkpoint).out
    with shardkeep.client() as client:
        latest = client.run("accepting/run").latest()
        assert latest is not None
        assert latest.id == checkpoint


def test_rm_discards_it_for_good(shardkeep: CommandLine) -> None:
    checkpoint = unconfirmed(shardkeep, "discarding/run")

    assert "discarded" in shardkeep.ok("rm", checkpoint, "--yes").out

    assert shardkeep("accept", checkpoint).code != 0
    assert shardkeep("restore", checkpoint).code != 0
    with shardkeep.client() as client, pytest.raises(CheckpointNotCommitted):
        client.run("discarding/run").checkpoint(1)
