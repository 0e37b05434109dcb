"""Launches whose ranks save shards of a small model from this process, each over its own connection's attempt."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import shardkeep as sk
from shardkeep.errors import SaveFailed
from shardkeep.format.chunks import chunk_ref
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep.protocol.messages import ChunkOffer, OpenCheckpoint
from shardkeep.store.attempt import Attempt
from shardkeep.store.save_handle import SaveHandle
from shardkeep.store.save_writer import SaveWriter

MARKUP: Final = "<img src=x onerror=alert(1)>"
"""Stands wherever a text of the user's own is taken. A page that takes it for markup opens a dialog."""
ROWS, COLUMNS = 96, 64
TENSORS: Final = ("model.embed.weight", "model.layers.0.proj.weight", f"model.{MARKUP}.weight")
_FROZEN: Final = "model.frozen.weight"
_SAVE_SECONDS: Final = 60.0

Floats = npt.NDArray[np.float32]


class Unpickled:
    """Writes a file when somebody unpickles it: nobody ever may."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self._path, "unpickled")


class Launch:
    """One attempt of every rank, and what they save. Resumes from the last committed checkpoint unless told which."""

    def __init__(
        self,
        client: sk.Client,
        run: str,
        *,
        world_size: int = 2,
        labels: Mapping[str, str] | None = None,
        resume_from: str | None = None,
        pickled: Path | None = None,
    ) -> None:
        launch_id = new_launch_id()
        worlds = [sk.World(rank, world_size, launch_id) for rank in range(world_size)]
        self._service = client.service
        self._pickled = pickled
        named = client.run(run)
        self._attempts = [named.begin_attempt(world, 0, labels) for world in worlds]
        for attempt in self._attempts:
            attempt.decide_resume(resume_from)

    @property
    def id(self) -> str:
        """The attempt's id."""
        return self._attempts[0].id

    @property
    def world_size(self) -> int:
        """How many ranks take part."""
        return len(self._attempts)

    def save(self, step: int, metrics: Mapping[str, float] | None = None) -> sk.Checkpoint:
        """The committed checkpoint of all ranks."""
        handles = [self._save_rank(attempt, step, metrics or {}) for attempt in self._attempts]
        return [handle.wait(_SAVE_SECONDS) for handle in handles][-1]

    def open(self, step: int, *, ranks: int = 1) -> str:
        """The id of a checkpoint that the first ranks opened, and offered a chunk to; they say nothing more."""
        save = self._attempts[0].saves
        for rank in range(ranks):
            body = OpenCheckpoint(save=save, step=step, rank=rank, world_size=self.world_size)
            answer = self._service.open_checkpoint(self.id, body)
            data = tensor_at(step, rank).tobytes()
            ref = chunk_ref([data])
            offer = ChunkOffer(digest=ref.digest, size=len(data), crc64=ref.crc64)
            self._service.negotiate(answer.checkpoint_id, rank, [offer], direct=False)
        for attempt in self._attempts:
            attempt.skip_save()
        return answer.checkpoint_id

    def save_without_the_last_rank(self, step: int, reason: str) -> str:
        """The id of a checkpoint that all ranks but the last have arrived at, and that is given up then."""
        *arriving, absent = self._attempts
        handles = [self._save_rank(attempt, step, {}) for attempt in arriving]
        absent.skip_save()
        checkpoint = handles[0].checkpoint_id
        state, arrived = self._service.state(checkpoint), len(arriving)
        while state.arrived < arrived:
            state = self._service.state(checkpoint, known=state.state, arrived=state.arrived, wait_seconds=20)
        self._service.abort(checkpoint, rank=0, reason=reason)
        for handle in handles:
            with suppress(SaveFailed):
                handle.wait(_SAVE_SECONDS)
        return checkpoint

    def close(self) -> None:
        """Lets go of the staging memory."""
        for attempt in self._attempts:
            attempt.close()

    def _save_rank(self, attempt: Attempt, step: int, metrics: Mapping[str, float]) -> SaveHandle:
        with attempt.start_save(step, expected_bytes=1 << 20) as writer:
            for number, name in enumerate(TENSORS):
                data = tensor_at(step, number)
                self._stage_rows(writer, name, data, SliceKind.PARAMETER, attempt.rank)
                self._stage_rows(writer, f"optimizer.{name}.exp_avg", data * 0.5, SliceKind.OPTIMIZER, attempt.rank)
            self._stage_rows(writer, _FROZEN, tensor_at(0, 9), SliceKind.FROZEN, attempt.rank)
            values = [
                writer.stage_value(path, value, per_rank=per_rank)
                for path, value, per_rank in self._values(step, attempt.rank)
            ]
            return writer.finish(values, metrics, {"host": MARKUP, "cuda": "none"})

    def _stage_rows(self, writer: SaveWriter, name: str, data: Floats, kind: SliceKind, rank: int) -> None:
        rows = len(data) // self.world_size
        part = np.ascontiguousarray(data[rank * rows : (rank + 1) * rows]).reshape(-1).view(np.uint8).data

        def fill(start: int, out: memoryview) -> None:
            out[:] = part[start : start + out.nbytes]

        region = Region((rank * rows, 0), (rows, data.shape[1]))
        writer.stage(name, "float32", data.shape, region, kind, fill=fill)

    def _values(self, step: int, rank: int) -> list[tuple[str, object, bool]]:
        version, words, gauss_next = random.Random(step * 1000 + rank).getstate()
        state = {"version": version, "words": np.array(words, dtype="<u4").tobytes(), "gauss_next": gauss_next}
        found: list[tuple[str, object, bool]] = [
            ("@loop", {"step": step, "unit": "steps of the training loop"}, False),
            ("@rng.python", state, True),
            ("data.epoch", step // 100, False),
            ("notes.comment", MARKUP, False),
            (f"notes.{MARKUP}", {"nan": float("nan"), "text": f"</script><script>alert({step})</script>"}, False),
        ]
        if self._pickled is not None:
            found.append(("notes.pickle", pickle.dumps(Unpickled(self._pickled)), False))
        return found


def tensor_at(step: int, number: int) -> Floats:
    """What a tensor holds at a step, the same at every call."""
    generator = np.random.default_rng(step * 100 + number)
    return generator.standard_normal((ROWS, COLUMNS)).astype(np.float32)
