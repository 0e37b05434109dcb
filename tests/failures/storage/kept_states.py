"""What was saved into a run, and the check that nothing of it is lost or half there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import shardkeep as sk
from shardkeep_service.access.scopes import Scope
from shardkeep_service.blob_store.file_system import FileSystemBlobStore
from shardkeep_service.blob_store.retrying import RetryingBlobStore, RetryPolicy
from tests.faulty_blob_store import FaultyBlobStore
from tests.unit.service.local_service import LocalService

State = dict[str, Any]
CHUNK_BYTES = 100_000


class FaultyService:
    """A real service over a file-system store that fails as it is told, and a client of it."""

    def __init__(self, directory: Path, *, store_window_seconds: float = 0.5, **settings: Any) -> None:
        self.store = FaultyBlobStore(FileSystemBlobStore(directory / "objects"))
        retrying = RetryingBlobStore(self.store, RetryPolicy(store_window_seconds, first_delay_seconds=0.01))
        self.local = LocalService(directory / "service", blob_store=retrying, **settings)

    def connect(self, *, retry_seconds: float = 60) -> sk.Client:
        return sk.connect(self.local._url, self.local.new_token(Scope.ADMIN), retry_seconds=retry_seconds, codec="raw")


class KeptStates:
    """Saves states of a few changing tensors, and remembers what was committed."""

    def __init__(self, client: sk.Client, name: str) -> None:
        self.client = client
        self.run = client.run(name)
        self.committed: dict[str, State] = {}

    def state(self, step: int) -> State:
        rng = np.random.default_rng([step, *self.run.name.encode()])  # no two runs share a chunk by chance
        return {
            "same": np.arange(CHUNK_BYTES, dtype=np.uint8),
            **{f"w{number}": rng.integers(0, 256, CHUNK_BYTES, np.uint8) for number in range(4)},
        }

    def save(self, step: int, *, timeout_seconds: float = 60) -> sk.Checkpoint:
        state = self.state(step)
        checkpoint = self.run.save(step, state).wait(timeout_seconds)
        self.committed[checkpoint.id] = state
        return checkpoint

    def check(self) -> None:
        """Every save that was reported committed is listed and loads bit-equal; nothing else is committed."""
        listed = {checkpoint.id for checkpoint in self.run.checkpoints(state="committed")}
        assert listed == self.committed.keys()
        for checkpoint_id, state in self.committed.items():
            target = {name: np.zeros_like(value) for name, value in state.items()}
            self.client.checkpoint(checkpoint_id).load_into(target)
            np.testing.assert_equal(target, state)
        latest = self.run.latest()
        assert (latest and latest.id) == (list(self.committed)[-1] if self.committed else None)
