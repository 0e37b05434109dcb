"""A committed checkpoint that bad input must not touch, and the one check that it did not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardkeep as sk
from shardkeep.errors import ServiceError
from shardkeep.store.run import Run
from tests.integration.service.process_client import ProcessClient
from tests.service_process import ServiceProcess
from tests.unit.service.training import Training

STEP = 10


def known_state() -> dict[str, Any]:
    """Several dtypes, an empty tensor, a 0-d one, and values."""
    random = np.random.default_rng(7)
    return {
        "model": {
            "weight": random.standard_normal((300, 40)).astype(np.float32),
            "bias": random.standard_normal(40),
            "empty": np.zeros((0, 4), np.float16),
        },
        "step": np.array(10),
        "epoch": 3,
        "note": ["lr", 3e-4, None],
    }


@dataclass
class Kept:
    """A run whose latest checkpoint is `checkpoint`, of step 10."""

    service: ServiceProcess
    client: sk.Client
    run: Run
    checkpoint: sk.Checkpoint

    @classmethod
    def save(cls, service: ServiceProcess, client: sk.Client, name: str) -> Kept:
        run = client.run(name)
        return cls(service, client, run, run.save(STEP, known_state()).wait(60))

    @property
    def name(self) -> str:
        return f"{self.run.project}/{self.run.name}"

    def other_run_object(self, client: sk.Client | None = None) -> Run:
        """The same run as another program sees it."""
        return (client or self.client).run(self.name)

    def training(self) -> Training:
        """Raw requests of a job that trains this run."""
        return Training(ProcessClient(self.service), self.run.project, self.run.name)

    def assert_nothing_was_lost(self) -> None:
        """The checkpoint is still the latest, loads bit-equal, and is all that was ever committed."""
        run = self.other_run_object()
        latest = run.latest()
        assert latest is not None
        assert latest.id == self.checkpoint.id
        state = known_state()
        target = _emptied(state)
        assert latest.load_into(target).success
        np.testing.assert_equal(target, state)
        for key in ("weight", "bias", "empty"):
            assert target["model"][key].tobytes() == state["model"][key].tobytes()
        assert [item.id for item in run.checkpoints(state="committed")] == [self.checkpoint.id]
        resumed = run.resume()
        assert resumed is not None
        assert resumed.id == self.checkpoint.id


def assert_says(refusal: ServiceError | dict[str, Any], code: str, next_step: str) -> None:
    """The stable code, and a detail that says what to do next."""
    found, detail = (refusal["code"], refusal["detail"]) if isinstance(refusal, dict) else (refusal.code, str(refusal))
    assert found == code
    assert re.search(next_step, detail), detail


def _emptied(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _emptied(value)
        if isinstance(value, dict)
        else np.zeros_like(value)
        if isinstance(value, np.ndarray)
        else type(value)()
        for key, value in state.items()
    }
