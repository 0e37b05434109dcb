"""`IndexBuilder`: merges the manifests of all ranks into an index and tells what keeps them from being a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.chunk_merge import merge_chunks
from shardkeep.format.chunk_table import ChunkTable, Places
from shardkeep.format.columns import Ints, range_positions
from shardkeep.format.coverage import find_coverage_problems
from shardkeep.format.index_columns import Index, make_lookup
from shardkeep.format.index_problems import COVERAGE_GAP, OVERLAP_CONFLICT, IndexProblem, ProblemList
from shardkeep.format.manifest_columns import Manifest
from shardkeep.format.replicas import choose_slices
from shardkeep.format.slice_merge import MergedSlices, RankSlices, merge_slices, slices_of_rank
from shardkeep.format.tensor_merge import TensorMerge
from shardkeep.format.tensor_table import TensorTable


class IndexBuilder:
    """Takes manifests one at a time, in any order; keeps about 50 bytes a slice and 30 a segment of each."""

    def __init__(self) -> None:
        self._problems = ProblemList()
        self._tensors = TensorMerge(self._problems)
        self._parts: dict[int, tuple[RankSlices, ChunkTable]] = {}
        self._save: tuple[int, int] | None = None

    def add(self, manifest: Manifest) -> None:
        """Merge one rank's manifest; FormatError if it is of another step or world size, or the rank came before."""
        save = (manifest.world_size, manifest.step)
        if self._save not in (None, save):
            raise FormatError(f"rank {manifest.rank} is of (world size, step) {save}, the others of {self._save}")
        if manifest.rank in self._parts:
            raise FormatError(f"rank {manifest.rank} has two manifests")
        self._save = save
        numbers, agrees = self._tensors.add(manifest.tensors, manifest.rank)
        self._parts[manifest.rank] = (slices_of_rank(manifest, numbers, agrees), manifest.chunk_table)

    def finish(self) -> tuple[Index, list[IndexProblem]]:
        """The index and, at most 100, the problems; an index with problems is not fit for storing.

        Uses the builder up. FormatError if no manifest was added. Ranks that never came are not noticed here.
        """
        if self._save is None:
            raise FormatError("an index needs at least one manifest")
        tensors, tensor_rows = self._tensors.finish()
        parts = [self._parts[rank] for rank in sorted(self._parts)]
        self._parts = {}
        chunks, chunk_rows = merge_chunks([chunk_table for _, chunk_table in parts])
        slices = [part for part, _ in parts]
        parts.clear()
        merged = merge_slices(slices, tensor_rows, chunk_rows)
        slices.clear()
        chosen = choose_slices(tensors, merged, self._problems)
        self._check_coverage(tensors, merged, chosen.region_leaders)
        world_size, step = self._save
        index = _index_of(world_size, step, tensors, merged, chosen.kept, chunks, chosen.divergent_buffers)
        return index, self._problems.problems()

    @property
    def problem_count(self) -> int:
        """How many problems there are, also beyond those that `finish` lists."""
        return self._problems.total

    def _check_coverage(self, tensors: TensorTable, merged: MergedSlices, leaders: Ints) -> None:
        boxes = merged.boxes.take(leaders)
        volumes = merged.raw_bytes[leaders] // tensors.item_bytes[boxes.tensor]
        report = find_coverage_problems(tensors.shapes, boxes, volumes=volumes)
        for problem in report.problems:
            name = tensors.names[problem.tensor]
            if self._problems.disagrees(name):
                continue
            ranks = [int(merged.ranks[leaders[row]]) for row in problem.slices]
            if problem.kind == "gap" and problem.region is not None:
                detail = f"no rank holds the region at {problem.region.offsets} of size {problem.region.sizes}"
                self._problems.add(COVERAGE_GAP, name, ranks, detail)
            elif problem.region is not None:
                detail = f"ranks {ranks} hold slices that overlap in part, at {problem.region.offsets}"
                self._problems.add(OVERLAP_CONFLICT, name, ranks, detail)
            else:
                self._problems.add(OVERLAP_CONFLICT, name, ranks, "its slices interlock too much to be told apart")


def build_index(manifests: Iterable[Manifest]) -> tuple[Index, list[IndexProblem]]:
    """The index of these manifests, one for each rank, and what is wrong with them (at most 100 problems)."""
    builder = IndexBuilder()
    for manifest in manifests:
        builder.add(manifest)
    return builder.finish()


def _index_of(
    world_size: int,
    step: int,
    tensors: TensorTable,
    merged: MergedSlices,
    kept: Ints,
    chunks: ChunkTable,
    divergent_buffers: tuple[str, ...],
) -> Index:
    boxes = merged.boxes.take(kept)
    counts = merged.segment_counts[kept]
    segments = range_positions(merged.fingerprint_starts[kept], counts)
    fingerprints = merged.fingerprints[segments]
    if merged.witness.any():
        segments = range_positions(merged.place_starts[kept], counts)
    places = merged.places.take(segments)
    is_used = np.zeros(len(chunks), np.bool_)
    is_used[places.chunk] = True
    new_rows = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    return Index(
        world_size,
        step,
        tensors,
        boxes,
        merged.ranks[kept],
        fingerprints,
        Places(new_rows[places.chunk], places.offset, places.size, places.codec),
        chunks.take(np.flatnonzero(is_used)),
        divergent_buffers,
        make_lookup(tensors, boxes, merged.raw_bytes[kept]),
    )
