"""Which of several slices of the same region are kept, and which replicas differ that must not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardkeep.format.boxes import element_bases
from shardkeep.format.columns import Flags, Ints, range_positions
from shardkeep.format.index_problems import MAX_INDEX_PROBLEMS, OVERLAP_CONFLICT, REPLICAS_DIVERGED, ProblemList
from shardkeep.format.segments import SliceKind
from shardkeep.format.slice_merge import MergedSlices
from shardkeep.format.tensor_table import TensorTable

_SEGMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ChosenSlices:
    """Rows of the merged slices: `kept` ones, in index order, and of each stored region one, `region_leaders`."""

    kept: Ints
    region_leaders: Ints
    divergent_buffers: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Merged slices in index order (`rows`), in runs of the same region; `leaders` is the leader's row at each place.

    The leader is the lowest rank that stores the region, or the first witness where none does.
    """

    rows: Ints
    run: Ints
    leaders: Ints


def choose_slices(tensors: TensorTable, merged: MergedSlices, problems: ProblemList) -> ChosenSlices:
    """Keep one of equal replicas, every rank's own of divergent buffers, all values; note replicas that differ."""
    runs = _runs_of_same_region(tensors, merged)
    is_leader = runs.rows == runs.leaders
    differs = _differing(merged, runs, is_leader)
    kinds = tensors.kinds[merged.boxes.tensor[runs.rows]]
    is_buffer, is_value = kinds == SliceKind.BUFFER, kinds == SliceKind.VALUE
    must_match = differs & ~is_buffer & ~is_value
    if must_match.any():
        _report(tensors, merged, runs, must_match, problems)
    divergent = np.zeros(int(runs.run[-1]) + 1 if len(runs.run) else 0, np.bool_)
    divergent[runs.run[differs & is_buffer]] = True
    is_divergent = divergent[runs.run]
    is_stored = ~merged.witness[runs.rows]
    is_kept = is_stored & (is_leader | is_value | is_divergent)
    names = np.unique(merged.boxes.tensor[runs.rows[is_divergent]]).tolist()
    return ChosenSlices(
        runs.rows[is_kept], runs.rows[is_leader & is_stored], tuple(tensors.names[row] for row in names)
    )


def _runs_of_same_region(tensors: TensorTable, merged: MergedSlices) -> _Runs:
    key = element_bases(tensors.shapes)[merged.boxes.tensor] + merged.boxes.first
    rows = np.argsort(key, kind="stable")
    key = key[rows]
    last = merged.boxes.last[rows]
    if ((key[1:] == key[:-1]) & (last[1:] < last[:-1])).any():
        order = np.lexsort((last, key))
        rows, key, last = rows[order], key[order], last[order]
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (key[1:] != key[:-1]) | (last[1:] != last[:-1])
    if is_new.all():
        return _Runs(rows, np.arange(len(rows), dtype=np.int64), rows)
    starts = np.flatnonzero(is_new)
    run = np.cumsum(is_new, dtype=np.int64) - 1
    places = np.arange(len(rows), dtype=np.int64)
    first_stored = np.minimum.reduceat(np.where(merged.witness[rows], len(rows), places), starts)
    leader_places = np.where(first_stored < len(rows), first_stored, starts)
    return _Runs(rows, run, rows[leader_places[run]])


def _differing(merged: MergedSlices, runs: _Runs, is_leader: Flags) -> Flags:
    """Whether the slice at each place has other fingerprints than its leader."""
    differs = np.zeros(len(runs.rows), np.bool_)
    places = np.flatnonzero(~is_leader)
    ends = np.cumsum(merged.segment_counts[runs.rows[places]])
    start = 0
    while start < len(places):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + _SEGMENTS_AT_ONCE)))
        batch = places[start:stop]
        rows, leaders = runs.rows[batch], runs.leaders[batch]
        counts = merged.segment_counts[rows]
        mine = merged.fingerprints[range_positions(merged.fingerprint_starts[rows], counts)].view(np.uint64)
        theirs = merged.fingerprints[range_positions(merged.fingerprint_starts[leaders], counts)].view(np.uint64)
        differs[np.repeat(batch, counts)[(mine != theirs).any(axis=1)]] = True
        start = stop
    return differs


def _report(tensors: TensorTable, merged: MergedSlices, runs: _Runs, is_wrong: Flags, problems: ProblemList) -> None:
    rows, leaders = runs.rows[is_wrong], runs.leaders[is_wrong]
    is_witness = merged.witness[rows]
    for code, of_code, what in (
        (OVERLAP_CONFLICT, ~is_witness, "stored different bytes for the same region"),
        (REPLICAS_DIVERGED, is_witness, "hold different bytes in the same region, which must be equal"),
    ):
        tensor_of = merged.boxes.tensor[rows[of_code]]
        for tensor in np.unique(tensor_of).tolist():
            ranks: list[int] = []
            if problems.total < MAX_INDEX_PROBLEMS:
                of_tensor = tensor_of == tensor
                pair = (rows[of_code][of_tensor], leaders[of_code][of_tensor])
                ranks = np.unique(merged.ranks[np.concatenate(pair)]).tolist()
            shown = ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")
            problems.add(code, tensors.names[tensor], ranks, f"ranks {shown} {what}")
