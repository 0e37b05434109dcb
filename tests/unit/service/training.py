"""A small training job against a service: begins attempts, opens checkpoints, hands in manifests, rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.format.chunks import ChunkRef, chunk_ref
from shardkeep.format.codecs import Codec
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.load_plan import LoadRequest, decode_load_plan, encode_load_request
from shardkeep.format.manifest import EnvironmentValue, build_manifest, encode_manifest
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SegmentRef, SliceKind, SliceRecord, ValueRecord
from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_launch_id
from tests.unit.service.local_service import LocalService

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank holds of one float32 tensor: a run of rows."""

    name: str
    shape: tuple[int, ...]
    first_row: int
    data: Floats
    kind: SliceKind = SliceKind.PARAMETER
    witness: bool = False
    """Only fingerprinted, because another rank stores this replica."""

    @property
    def region(self) -> Region:
        offsets = (self.first_row,) + (0,) * (len(self.shape) - 1)
        return Region(offsets, self.data.shape)


@dataclass(frozen=True, slots=True)
class Packed:
    """One rank's manifest, encoded, and its chunks."""

    manifest: bytes
    chunks: tuple[tuple[ChunkRef, bytes], ...]


def pack(
    parts: Sequence[Part],
    *,
    rank: int,
    world_size: int,
    step: int,
    values: Sequence[ValueRecord] = (),
    metrics: Mapping[str, float] | None = None,
    environment: Mapping[str, EnvironmentValue] | None = None,
) -> Packed:
    """One chunk per part; no compression."""
    chunks: list[tuple[ChunkRef, bytes]] = []
    records = [_record(part, chunks) for part in parts]
    manifest = build_manifest(
        rank=rank,
        world_size=world_size,
        step=step,
        slices=records,
        values=list(values),
        metrics=dict(metrics or {}),
        environment=dict(environment or {}),
    )
    return Packed(encode_manifest(manifest), tuple({ref: (ref, data) for ref, data in chunks}.values()))


def _record(part: Part, chunks: list[tuple[ChunkRef, bytes]]) -> SliceRecord:
    raw = np.ascontiguousarray(part.data).tobytes()
    pieces = [raw[start : start + SEGMENT_BYTES] for start in range(0, len(raw), SEGMENT_BYTES)]
    fingerprints = tuple(fingerprint(piece) for piece in pieces)
    segments: tuple[SegmentRef, ...] = ()
    if raw and not part.witness:
        ref = chunk_ref([raw])
        chunks.append((ref, raw))
        segments = tuple(
            SegmentRef(ref, row * SEGMENT_BYTES, len(piece), Codec.RAW, fingerprints[row])
            for row, piece in enumerate(pieces)
        )
    return SliceRecord(part.name, "float32", part.shape, part.region, part.kind, part.witness, segments, fingerprints)


def weights(step: int, world_size: int, *, name: str = "model.weight", rows: int = 2) -> list[list[Part]]:
    """For each rank its rows of one tensor whose content follows from the step."""
    whole = whole_weight(step, world_size, rows=rows)
    return [
        [Part(name, whole.shape, rank * rows, whole[rank * rows : (rank + 1) * rows])] for rank in range(world_size)
    ]


def whole_weight(step: int, world_size: int, *, rows: int = 2) -> Floats:
    """What `weights` shards."""
    count = world_size * rows * 4
    return (np.arange(count, dtype=np.float32) + 1000 * step).reshape(world_size * rows, 4)


@dataclass(slots=True)
class Training:
    """One run; every method is one request or a short sequence of them."""

    service: LocalService
    project: str = "project"
    run: str = "run"
    launches: int = field(default=0)

    def __post_init__(self) -> None:
        self.service.ask("PUT", self.path(routes.RUN))

    def path(self, template: str, **parts: str | int) -> str:
        return routes.path(template, project=self.project, run=self.run, **parts)

    def begin(self, world_size: int = 2, *, launch_id: str | None = None, ordinal: int = 0) -> str:
        """The id of a new attempt."""
        body = {"launch_id": launch_id or new_launch_id(), "ordinal": ordinal, "world_size": world_size}
        return str(self.service.ask("POST", self.path(routes.RUN_ATTEMPTS), body)["id"])

    def decide(self, attempt: str, **body: Any) -> dict[str, Any]:
        """The resume decision."""
        return self.service.ask("POST", routes.path(routes.RESUME, attempt=attempt), body)

    def start(self, world_size: int = 2, **body: Any) -> str:
        """The id of a new attempt that has decided."""
        attempt = self.begin(world_size)
        self.decide(attempt, **body)
        return attempt

    def open(self, attempt: str, *, save: int, step: int, rank: int, world_size: int = 2) -> dict[str, Any]:
        """Opens a checkpoint for one rank."""
        body = {"save": save, "step": step, "rank": rank, "world_size": world_size}
        return self.service.ask("POST", routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt), body)

    def open_all(self, attempt: str, *, save: int, step: int, world_size: int = 2) -> str:
        """The checkpoint, opened by every rank."""
        ids = {
            self.open(attempt, save=save, step=step, rank=rank, world_size=world_size)["checkpoint_id"]
            for rank in range(world_size)
        }
        assert len(ids) == 1
        return str(ids.pop())

    def upload(self, checkpoint: str, rank: int, packed: Packed) -> None:
        """Stores the chunks of a rank."""
        for ref, data in packed.chunks:
            path = routes.path(routes.CHUNK, checkpoint=checkpoint, digest=ref.digest)
            headers = {routes.CRC64_HEADER: f"{ref.crc64:016x}"}
            self.service.ask("PUT", path, content=data, headers=headers, query={"rank": rank})

    def hand_in(self, checkpoint: str, rank: int, packed: Packed) -> dict[str, Any]:
        """Puts a rank's manifest."""
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=rank)
        return self.service.ask("PUT", path, content=packed.manifest)

    def pack_all(self, step: int, world_size: int = 2) -> list[Packed]:
        """What every rank saves at a step."""
        parts = weights(step, world_size)
        return [pack(parts[rank], rank=rank, world_size=world_size, step=step) for rank in range(world_size)]

    def save(
        self, attempt: str, *, save: int, step: int, world_size: int = 2, packed: Sequence[Packed] | None = None
    ) -> str:
        """The id of a committed checkpoint."""
        checkpoint = self.open_all(attempt, save=save, step=step, world_size=world_size)
        state = self.finish(checkpoint, packed or self.pack_all(step, world_size))
        assert state["state"] == "committed", state
        return checkpoint

    def finish(self, checkpoint: str, packed: Sequence[Packed]) -> dict[str, Any]:
        """Uploads and hands in everything; the state once validation has ended."""
        for rank, one in enumerate(packed):
            self.upload(checkpoint, rank, one)
            self.hand_in(checkpoint, rank, one)
        return self.service.wait_until_settled(checkpoint)

    def latest(self) -> dict[str, Any]:
        """The latest answer."""
        return self.service.ask("GET", self.path(routes.LATEST))

    def latest_id(self) -> str | None:
        """The id of the latest checkpoint."""
        checkpoint = self.latest()["checkpoint"]
        return None if checkpoint is None else str(checkpoint["id"])

    def info(self, checkpoint: str) -> dict[str, Any]:
        """One checkpoint, whole."""
        return self.service.ask("GET", routes.path(routes.CHECKPOINT, checkpoint=checkpoint))

    def change(self, method: str, template: str, checkpoint: str, version: int | None = None) -> dict[str, Any]:
        """Deletes, restores, pins or unpins; at the present version unless one is given."""
        seen = self.info(checkpoint)["version"] if version is None else version
        headers = {"if-match": f'"{seen}"'}
        return self.service.ask(method, routes.path(template, checkpoint=checkpoint), headers=headers)

    def load(self, checkpoint: str, name: str = "model.weight") -> Floats:
        """A whole tensor, read through a load plan and chunk ranges."""
        path = routes.path(routes.LOAD_PLAN, checkpoint=checkpoint)
        request = encode_load_request(LoadRequest.whole([name]))
        answer = self.service.send("POST", path, content=request)
        assert answer.is_success, answer.content
        plan = decode_load_plan(answer.content)
        assert not plan.unknown, plan.unknown
        out = np.full(plan.shape(0), np.nan, np.float32)
        for piece in plan.pieces():
            raw = b"".join(self._read(checkpoint, segment) for segment in piece.segments)
            source = np.frombuffer(raw, np.float32).reshape(piece.source.sizes)
            out[_slices(piece.region)] = source[_slices(piece.region.relative_to(piece.source))]
        return out

    def _read(self, checkpoint: str, segment: Any) -> bytes:
        path = routes.path(routes.CHUNK, checkpoint=checkpoint, digest=segment.chunk.digest)
        end = segment.offset + segment.size_bytes - 1
        answer = self.service.send("GET", path, headers={"range": f"bytes={segment.offset}-{end}"})
        assert answer.is_success, answer.content
        assert fingerprint(answer.content) == segment.fingerprint
        return answer.content


def _slices(region: Region) -> tuple[slice, ...]:
    return tuple(slice(start, end) for start, end in zip(region.offsets, region.ends, strict=True))
