"""Trials that damage the stored objects themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import IntegrityError
from shardkeep.format.regions import Region
from tests.service_process import ServiceProcess

ROWS, COLUMNS = 300, 2000


def weights(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def damage(path: Path, kind: str) -> None:
    path.chmod(0o600)
    if kind == "cut":
        os.truncate(path, path.stat().st_size - 4096)
        return
    data = bytearray(path.read_bytes())
    data[-5000] ^= 0x10
    path.write_bytes(data)


def load_rows(checkpoint: sk.Checkpoint, rank: int, readers: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    rows = ROWS // readers
    out = np.zeros((rows, COLUMNS), np.float32)
    region = Region((rank * rows, 0), (rows, COLUMNS))
    checkpoint.read([sk.ReadRequest("layer.w", region, out.reshape(-1).view(np.uint8).data)])
    return out


@pytest.mark.parametrize("kind", ["flipped", "cut"])
@pytest.mark.parametrize("readers", [1, 3])
def test_E204_a_damaged_object_fails_the_ranks_that_need_it_by_name_and_the_step_before_is_offered(
    shared_service: ServiceProcess, kind: str, readers: int
) -> None:
    with sk.connect(shared_service.url, shared_service.token, codec="raw") as client:
        run = client.run(f"reports/damage-{kind}-{readers}")
        seed = 10 * readers + (kind == "cut")
        earlier = run.save(1, {"layer": {"w": weights(seed)}}).wait(60)
        later = run.save(2, {"layer": {"w": weights(seed + 100)}}).wait(60)
        digest = next(iter(later.manifest().chunks())).digest
        (stored,) = shared_service.data_dir.rglob(f"{digest}.*")
        damage(stored, kind)

        failures = []
        for rank in range(readers):
            try:
                rows = load_rows(later, rank, readers)
            except IntegrityError as error:
                failures.append(str(error))
            else:
                part = ROWS // readers
                np.testing.assert_array_equal(rows, weights(seed + 100)[rank * part : (rank + 1) * part])
        assert failures
        assert all("layer.w, offsets" in text and digest in text for text in failures)
        latest = run.latest()
        assert latest is not None
        assert latest.id == earlier.id
        assert [(item.step, item.code) for item in run.passed_over()] == [(2, "quarantined")]
        resumed = client.run(f"{run.project}/{run.name}").resume()
        assert resumed is not None
        np.testing.assert_array_equal(load_rows(resumed, 0, 1), weights(seed))
