"""What simulated ranks hand in and ask for: encoded manifests, offers of chunks, load requests. No chunk has bytes.

Every tensor is sharded by rows over all ranks, as FSDP does. Digests, checksums and fingerprints are random.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardkeep.format.chunk_table import ChunkTable, Places, make_chunk_table
from shardkeep.format.codecs import Codec
from shardkeep.format.columns import Ints, starts_of
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.fingerprints import FINGERPRINT_BYTES
from shardkeep.format.load_plan import LoadRequest, encode_load_request
from shardkeep.format.manifest import encode_manifest
from shardkeep.format.manifest_checks import assemble_manifest
from shardkeep.format.names import join_name
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind, ValueRecord, segment_sizes
from shardkeep.format.tensor_table import TensorTable, make_tensor_table, shapes_of
from shardkeep.format.values import encode_value
from shardkeep.format.versions import FORMAT_VERSION
from shardkeep.protocol.messages import ChunkOffer, NegotiateChunks

STEP = 1_000
_ROWS_PER_RANK = 12
"""Divisible by four thirds: three quarters of the ranks load 16 rows each."""
_LAYER_PARTS = (
    ("attention", "q"), ("attention", "k"), ("attention", "v"), ("attention", "o"),
    ("mlp", "gate"), ("mlp", "up"), ("mlp", "down"),
)  # fmt: skip
_RNG_STATE_BYTES = 5_056
"""What torch's CPU generator saves."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the checkpoint is; the slices of a rank are equally large whatever the number of ranks."""

    ranks: int
    slices: int = 3_000
    chunks: int = 300
    slice_bytes: int = 3 << 20

    def __post_init__(self) -> None:
        if self.ranks % 4 or self.slices % self.chunks or self.slice_bytes % (4 * _ROWS_PER_RANK):
            raise SystemExit("ranks must divide by 4, slices by chunks, and slice bytes by 48")

    @property
    def load_ranks(self) -> int:
        """How many ranks load it."""
        return self.ranks * 3 // 4

    @property
    def columns(self) -> int:
        """Columns of every tensor, whose rows are shared out."""
        return self.slice_bytes // (4 * _ROWS_PER_RANK)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of every tensor."""
        return self.ranks * _ROWS_PER_RANK, self.columns


@dataclass(frozen=True, slots=True)
class SimulatedRank:
    """What one rank sends, encoded beforehand, and the chunks its manifest names."""

    rank: int
    offers: bytes
    manifest: bytes
    chunks: ChunkTable


def tensor_names(count: int) -> tuple[str, ...]:
    """Names as of a transformer's weights and their two AdamW moments, sorted."""
    names = []
    for number in range(-(-count // 3)):
        layer, part = divmod(number, len(_LAYER_PARTS))
        parameter = ("model", "layers", str(layer), *_LAYER_PARTS[part], "weight")
        names += [join_name(parameter)]
        names += [join_name(("optimizer", "state", ".".join(parameter), key)) for key in ("exp_avg", "exp_avg_sq")]
    return tuple(sorted(names[:count]))


def simulated_ranks(scale: Scale) -> Iterator[SimulatedRank]:
    """Every rank in turn; the same for the same scale."""
    tensors = _tensor_table(scale)
    for rank in range(scale.ranks):
        yield _simulated_rank(scale, tensors, rank)


def load_requests(scale: Scale) -> Iterator[bytes]:
    """What each loading rank asks for: its own rows of every tensor."""
    names = tensor_names(scale.slices)
    rows = scale.shape[0] // scale.load_ranks
    for rank in range(scale.load_ranks):
        region = Region((rank * rows, 0), (rows, scale.columns))
        yield encode_load_request(LoadRequest(names, (region,) * len(names), rank))


def _tensor_table(scale: Scale) -> TensorTable:
    names = tensor_names(scale.slices)
    kinds = [SliceKind.PARAMETER if name.startswith("model") else SliceKind.OPTIMIZER for name in names]
    codes = np.full(len(names), dtype_named("float32").code, np.int64)
    return make_tensor_table(names, codes, np.array(kinds, np.int64), shapes_of([scale.shape] * len(names)))


def _simulated_rank(scale: Scale, tensors: TensorTable, rank: int) -> SimulatedRank:
    random = np.random.default_rng(rank)
    chunks = make_chunk_table(
        random.integers(0, 256, (scale.chunks, 32), np.uint8),
        np.full(scale.chunks, scale.slice_bytes * scale.slices // scale.chunks, np.int64),
        random.integers(0, 1 << 64, scale.chunks, np.uint64),
    )
    places = _places(scale)
    manifest = assemble_manifest(
        format_version=FORMAT_VERSION,
        rank=rank,
        world_size=scale.ranks,
        step=STEP,
        tensors=tensors,
        slice_tensor=np.arange(scale.slices, dtype=np.int64),
        witness=np.zeros(scale.slices, np.bool_),
        offsets=np.tile(np.array([rank * _ROWS_PER_RANK, 0], np.int64), scale.slices),
        sizes=np.tile(np.array([_ROWS_PER_RANK, scale.columns], np.int64), scale.slices),
        fingerprints=random.integers(0, 256, (len(places), FINGERPRINT_BYTES), np.uint8),
        places=places,
        chunk_table=chunks,
        values=_values(rank, random.bytes(_RNG_STATE_BYTES)),
        metrics={"loss": 2.0 + rank / scale.ranks, "grad_norm": 1.0},
        environment={"torch": "2.13.0", "device": "cuda", "world_size": scale.ranks},
    )
    return SimulatedRank(rank, _offers(rank, chunks), encode_manifest(manifest), chunks)


def _places(scale: Scale) -> Places:
    """Every chunk holds the same number of consecutive slices, whole."""
    sizes: Ints = np.tile(np.array(segment_sizes(scale.slice_bytes), np.int64), scale.slices)
    chunk: Ints = np.repeat(np.arange(scale.chunks, dtype=np.int64), len(sizes) // scale.chunks)
    starts = starts_of(sizes)[:-1]
    chunk_bytes = scale.slice_bytes * scale.slices // scale.chunks
    return Places(chunk, starts - chunk * chunk_bytes, sizes, np.full(len(sizes), Codec.RAW, np.int64))


def _values(rank: int, rng_state: bytes) -> tuple[ValueRecord, ...]:
    records = [
        ValueRecord(join_name(("@loop", "step")), encode_value(STEP), per_rank=False),
        ValueRecord(join_name(("@rng", "torch")), encode_value(rng_state), per_rank=True),
        ValueRecord(join_name(("scheduler", "last_epoch")), encode_value(STEP), per_rank=False),
        ValueRecord(join_name(("data", "position")), encode_value({"batch": STEP, "worker": rank}), per_rank=True),
    ]
    return tuple(sorted(records, key=lambda record: record.path))


def _offers(rank: int, chunks: ChunkTable) -> bytes:
    offers = [ChunkOffer(digest=ref.digest, size=ref.size_bytes, crc64=ref.crc64) for ref in chunks.rows()]
    return NegotiateChunks(rank=rank, chunks=offers).model_dump_json().encode()


def segments_of(scale: Scale) -> int:
    """Segments in the whole checkpoint."""
    return scale.ranks * scale.slices * -(-scale.slice_bytes // SEGMENT_BYTES)


def as_json(body: dict[str, object]) -> bytes:
    """A small JSON body."""
    return json.dumps(body).encode()
