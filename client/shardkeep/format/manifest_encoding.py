"""Manifests as bytes: one compressed msgpack map of columns in a container."""

from __future__ import annotations

import struct

import msgspec
import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.buffers import Buffer
from shardkeep.format.columns import pack_unsigned, starts_of, unpack_bytes, unpack_unsigned
from shardkeep.format.container import Container, pack_container
from shardkeep.format.fingerprints import FINGERPRINT_BYTES
from shardkeep.format.manifest_checks import assemble_manifest
from shardkeep.format.manifest_columns import Manifest
from shardkeep.format.segments import ValueRecord
from shardkeep.format.stored_columns import (
    StoredChunks,
    StoredPlaces,
    decode_map,
    load_chunks,
    load_places,
    pack_flags,
    store_chunks,
    store_places,
    unpack_flags,
)
from shardkeep.format.tensor_table import StoredTensors, load_tensors, pack_texts, store_tensors, unpack_texts

MANIFEST_MAGIC = b"SKmf"
MAX_MANIFEST_RAW_BYTES = 256 << 20
"""Uncompressed. A manifest of 3,000 slices and 10,000 segments takes about 0.4 MB."""
MAX_SLICES = 1 << 22
"""Of one rank. Bounds memory, because a slice of a 0-d tensor takes only a bit of the compressed bytes."""

_LEVEL = 3


class _StoredSlices(msgspec.Struct, forbid_unknown_fields=True):
    """The slice columns as stored."""

    counts: memoryview
    witness: memoryview
    offsets: memoryview
    sizes: memoryview


class _StoredManifest(msgspec.Struct, forbid_unknown_fields=True):
    rank: int
    world_size: int
    step: int
    tensors: StoredTensors
    slices: _StoredSlices
    fingerprints: memoryview
    segments: StoredPlaces
    chunks: StoredChunks
    value_paths: memoryview
    value_per_rank: memoryview
    value_sizes: memoryview
    value_bytes: memoryview
    metric_names: memoryview
    metric_values: memoryview
    environment: dict[str, str | int | float | bool]


_DECODER = msgspec.msgpack.Decoder(_StoredManifest)
_NAMES_DECODER = msgspec.msgpack.Decoder(list[str])


def encode_manifest(manifest: Manifest) -> bytes:
    """The stored bytes; the same for equal manifests and library versions."""
    columns, values = manifest.slice_columns, manifest.values
    metrics = sorted(manifest.metrics)
    stored = _StoredManifest(
        rank=manifest.rank,
        world_size=manifest.world_size,
        step=manifest.step,
        tensors=store_tensors(manifest.tensors),
        slices=_StoredSlices(
            counts=memoryview(pack_unsigned(np.bincount(columns.tensor, minlength=len(manifest.tensors)))),
            witness=memoryview(pack_flags(columns.witness)),
            offsets=memoryview(pack_unsigned(columns.corners.offsets)),
            sizes=memoryview(pack_unsigned(columns.corners.sizes)),
        ),
        fingerprints=memoryview(manifest.fingerprints.tobytes()),
        segments=store_places(manifest.places),
        chunks=store_chunks(manifest.chunk_table),
        value_paths=memoryview(pack_texts([value.path for value in values])),
        value_per_rank=memoryview(bytes(value.per_rank for value in values)),
        value_sizes=memoryview(pack_unsigned(np.array([len(value.encoded) for value in values], np.int64))),
        value_bytes=memoryview(b"".join(value.encoded for value in values)),
        metric_names=memoryview(msgspec.msgpack.encode(metrics)),
        metric_values=memoryview(struct.pack(f"<{len(metrics)}d", *(manifest.metrics[name] for name in metrics))),
        environment={name: manifest.environment[name] for name in sorted(manifest.environment)},
    )
    return pack_container(MANIFEST_MAGIC, [msgspec.msgpack.encode(stored)], level=_LEVEL)


def decode_manifest(data: Buffer) -> Manifest:
    """The manifest of these bytes, with every rule checked. FormatError, or VersionTooNew, for anything else."""
    container = Container(data, magic=MANIFEST_MAGIC, section_count=1, max_raw_bytes=MAX_MANIFEST_RAW_BYTES)
    stored = decode_map(_DECODER, container.section(0), "manifest")
    tensors = load_tensors(stored.tensors)
    slice_counts = unpack_unsigned(stored.slices.counts, len(tensors), "slice counts")
    slice_total = int(slice_counts.astype(object).sum())
    if slice_total > MAX_SLICES:
        raise FormatError(f"{slice_total} slices are above the limit of {MAX_SLICES}")
    return assemble_manifest(
        format_version=container.version,
        rank=stored.rank,
        world_size=stored.world_size,
        step=stored.step,
        tensors=tensors,
        slice_tensor=np.repeat(np.arange(len(tensors), dtype=np.int64), slice_counts),
        witness=unpack_flags(stored.slices.witness, slice_total, "witness"),
        offsets=unpack_unsigned(stored.slices.offsets, None, "offsets"),
        sizes=unpack_unsigned(stored.slices.sizes, None, "sizes"),
        fingerprints=unpack_bytes(stored.fingerprints, None, FINGERPRINT_BYTES, "fingerprints"),
        places=load_places(stored.segments),
        chunk_table=load_chunks(stored.chunks),
        values=_load_values(stored),
        metrics=_load_metrics(stored),
        environment=dict(stored.environment),
    )


def decode_manifest_values(data: Buffer) -> tuple[ValueRecord, ...]:
    """Only the values of a manifest that was checked whole when it arrived, without looking at its slices."""
    container = Container(data, magic=MANIFEST_MAGIC, section_count=1, max_raw_bytes=MAX_MANIFEST_RAW_BYTES)
    return _load_values(decode_map(_DECODER, container.section(0), "manifest"))


def _load_values(stored: _StoredManifest) -> tuple[ValueRecord, ...]:
    paths = unpack_texts(stored.value_paths, "value paths")
    sizes = unpack_unsigned(stored.value_sizes, len(paths), "value sizes")
    flags = unpack_bytes(stored.value_per_rank, len(paths), 1, "value marks")
    if flags.max(initial=0) > 1:
        raise FormatError("a value is marked neither global nor per rank")
    if int(sizes.astype(object).sum()) != len(stored.value_bytes):
        raise FormatError("the value sizes do not add up to the bytes stored")
    starts = starts_of(sizes).tolist()
    return tuple(
        ValueRecord(path, bytes(stored.value_bytes[starts[row] : starts[row + 1]]), bool(flags[row, 0]))
        for row, path in enumerate(paths)
    )


def _load_metrics(stored: _StoredManifest) -> dict[str, float]:
    names = decode_map(_NAMES_DECODER, stored.metric_names, "metric names")
    if len(stored.metric_values) != 8 * len(names) or len(set(names)) != len(names):
        raise FormatError("metric names repeat or do not match the metric values")
    return dict(zip(names, struct.unpack(f"<{len(names)}d", stored.metric_values), strict=True))
