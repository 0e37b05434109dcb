"""The database is dropped under a real service: rebuilt from the bucket, everything that was committed is there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import IntegrityError
from shardkeep.protocol.messages import CheckpointState
from tests.integration.recovery.plants import EmbeddedPlant, Plant, finding, wait_for_records

Floats = np.ndarray[Any, np.dtype[np.float32]]


def weights(seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((50, 2000)).astype(np.float32)


def state(seed: int) -> dict[str, Any]:
    return {"layer": {"w": weights(seed), "frozen": weights(0)}, "note": f"seed {seed}"}


def check(checkpoint: sk.Checkpoint, seed: int) -> None:
    np.testing.assert_array_equal(np.asarray(checkpoint.tensor("layer.w")), weights(seed))
    np.testing.assert_array_equal(np.asarray(checkpoint.tensor("layer.frozen")), weights(0))
    assert checkpoint.values()[("note",)] == f"seed {seed}"


def connect(plant: Plant) -> sk.Client:
    return sk.connect(plant.url, plant.token, retry_seconds=20)


def test_everything_committed_loads_bit_equal_after_a_rebuild_and_a_new_save_reuses_it(plant: Plant) -> None:
    plant.start()
    with connect(plant) as client:
        run = client.run("project/run")
        saved = [run.save(step, state(step)).wait(60) for step in (1, 2, 3, 4)]
        saved[0].pin("the first")
        saved[3].delete()
        ids = [checkpoint.id for checkpoint in saved]
        numbers = [(found.id, found.sequence, found.step) for found in run.checkpoints()]
    wait_for_records(plant)
    plant.stop()

    plant.lose_database()
    if isinstance(plant, EmbeddedPlant):
        assert "rebuild" in plant.start_is_refused()
    done = plant.run("rebuild", "--json")

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["projects"], report["runs"], report["checkpoints"]) == (1, 1, 4)
    assert plant.run("rebuild").returncode == 1, "a database that holds something is refused"
    plant.start()
    plant.token = report["admin_token"]
    with connect(plant) as client:
        run = client.run("project/run")
        assert [(found.id, found.sequence, found.step) for found in run.checkpoints()] == numbers
        for step in (1, 2, 3):
            check(run.checkpoint(step), step)
        assert run.checkpoint(1).info.pinned
        latest = run.latest()
        assert latest is not None
        assert latest.id == ids[2]
        resumed = client.run("project/run").resume()
        assert resumed is not None
        assert resumed.id == ids[2]
        deleted = [summary.id for summary in run.checkpoints(state=CheckpointState.DELETED)]
        assert deleted == [ids[3]]
        client.checkpoint(ids[3]).restore()
        check(run.checkpoint(4), 4)
    assert finding(plant, "retention")["level"] == "warn"
    assert plant.run("resume-retention").returncode == 0
    assert plant.run("scrub", "--json").returncode == 0
    with connect(plant) as client:
        again = client.run("project/other").save(1, state(1), fresh=True).wait(60)
        assert (again.info.new_bytes or 0) < 1000, "the bytes are there, and proven by the scrub: other runs reuse them"
        check(again, 1)


def test_E204_a_bit_flipped_in_any_object_is_found_by_the_scrub_and_by_a_load(plant: Plant) -> None:
    plant.start()
    with connect(plant) as client:
        run = client.run("project/run")
        whole, *saved = [run.save(step, {"layer": {"w": weights(step)}}).wait(60) for step in (1, 2, 3, 4, 5)]
        wait_for_records(plant)
        folders = ("chunks", "manifests", "indexes", "commits")
        chunk, manifest, index, record = (
            plant.flip_a_bit(folder, checkpoint.id) for folder, checkpoint in zip(folders, saved, strict=True)
        )

        with pytest.raises(IntegrityError, match=r"layer\.w"):
            np.asarray(saved[0].tensor("layer.w"))
        with pytest.raises(IntegrityError):
            saved[1].manifest()
        done = plant.run("scrub", "--all", "--json")

        assert done.returncode == 3, done.stderr
        report = json.loads(done.stdout)
        assert set(report["damaged"]) == {chunk, manifest, record}
        assert report["repaired"] == [index]
        assert [checkpoint.refresh().quarantined for checkpoint in saved] == [True, True, False, False]
        for checkpoint, step in ((whole, 1), (saved[2], 4), (saved[3], 5)):
            np.testing.assert_array_equal(np.asarray(checkpoint.tensor("layer.w")), weights(step))
        latest = run.latest()
        assert latest is not None
        assert latest.id == saved[3].id
        assert finding(plant, "integrity")["level"] == "warn"

        run.save(6, {"layer": {"w": weights(2)}}).wait(60)
        assert not saved[0].refresh().quarantined, "a save that brings the same bytes heals it"
        np.testing.assert_array_equal(np.asarray(saved[0].tensor("layer.w")), weights(2))
