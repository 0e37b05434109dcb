"""Where every element of every parameter lies: buckets, each divided among the ranks. No other code counts offsets.

A bucket is one flat run of parameters of one dtype. Rank r owns the elements `bounds[r]` to `bounds[r + 1]` of it. With
`flat` ranks own equal parts, whatever parameters they cut (ZeRO, arXiv 1910.02054); padding at the end of a bucket
makes them equal and appears nowhere else. With `whole` every parameter has one owner, for optimizers that look at
matrices.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final, Literal

LayoutKind = Literal["flat", "whole"]
ALIGNMENT: Final = 16
"""Elements to which each rank's part of a bucket is rounded up: 64 bytes of fp32."""


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """What the layout knows of a parameter.

    `run` keeps apart what must not share a bucket (at stage 3, what is not gathered together); `trainable` likewise,
    so that frozen parameters cost neither gradients nor state.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    item_bytes: int
    trainable: bool = True
    run: int = 0

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Slice:
    """Elements `start` to `stop` of a parameter, at `offset` of its bucket. Never empty."""

    parameter: int
    start: int
    stop: int
    offset: int

    @property
    def size(self) -> int:
        """Elements."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Bucket:
    """Parameters in order of `offsets`, in elements. `size` includes padding; rank r owns `bounds[r]:bounds[r + 1]`."""

    index: int
    dtype: str
    trainable: bool
    run: int
    parameters: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    size: int
    bounds: tuple[int, ...]

    def part(self, rank: int) -> tuple[int, int]:
        """The elements a rank owns."""
        return self.bounds[rank], self.bounds[rank + 1]

    def slices(self, rank: int) -> tuple[Slice, ...]:
        """What a rank owns of each parameter, in order."""
        return self.cut(*self.part(rank))

    def cut(self, begin: int, end: int) -> tuple[Slice, ...]:
        """What lies between two elements of the bucket, in order; padding is no slice."""
        found = []
        first = max(0, bisect_right(self.offsets, begin) - 1)
        for index in range(first, len(self.parameters)):
            offset, size = self.offsets[index], self.sizes[index]
            if offset >= end:
                break
            start, stop = max(begin, offset), min(end, offset + size)
            if start < stop:
                found.append(Slice(self.parameters[index], start - offset, stop - offset, start))
        return tuple(found)


@dataclass(slots=True)
class Layout:
    """All buckets of some parameters; more are appended for parameters that come later."""

    kind: LayoutKind
    world_size: int
    bucket_bytes: int
    specs: list[ParameterSpec] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    bucket_of: dict[int, int] = field(default_factory=dict)
    """Of each parameter, by index."""
    place_of: dict[int, int] = field(default_factory=dict)
    """Of each parameter, among those of its bucket."""

    def append(self, specs: Sequence[ParameterSpec]) -> list[Bucket]:
        """Buckets for further parameters. They are filled from the last parameter on, which has its gradient first."""
        first = len(self.specs)
        self.specs += specs
        added = []
        for members in _runs(specs, self.bucket_bytes):
            bucket = self._bucket(len(self.buckets), [first + member for member in members])
            self.buckets.append(bucket)
            self.bucket_of.update(dict.fromkeys(bucket.parameters, bucket.index))
            self.place_of.update((member, place) for place, member in enumerate(bucket.parameters))
            added.append(bucket)
        return added

    def digest(self) -> bytes:
        """16 bytes that are equal where names, shapes, dtypes, order and division are."""
        text = hashlib.blake2b(digest_size=16)
        text.update(repr((self.kind, self.world_size, self.bucket_bytes)).encode())
        for spec in self.specs:
            text.update(repr((spec.name, spec.shape, spec.dtype, spec.trainable, spec.run)).encode())
        return text.digest()

    def _bucket(self, index: int, members: list[int]) -> Bucket:
        specs = [self.specs[member] for member in members]
        owned = _flat(specs, self.world_size) if self.kind == "flat" else _whole(specs, self.world_size)
        order, offsets, bounds = owned
        first = specs[0]
        return Bucket(
            index,
            first.dtype,
            first.trainable,
            first.run,
            tuple(members[place] for place in order),
            tuple(offsets),
            tuple(specs[place].size for place in order),
            bounds[-1],
            tuple(bounds),
        )


def _runs(specs: Sequence[ParameterSpec], bucket_bytes: int) -> Iterator[list[int]]:
    """Members of each bucket: alike in dtype, run and trainability, together at most `bucket_bytes` unless one alone
    is more.
    """
    open_runs: dict[tuple[str, bool, int], list[int]] = {}
    filled: dict[tuple[str, bool, int], int] = {}
    closed: list[list[int]] = []
    for member in reversed(range(len(specs))):
        spec = specs[member]
        key = (spec.dtype, spec.trainable, spec.run)
        size = spec.size * spec.item_bytes
        if key in open_runs and filled[key] + size > bucket_bytes:
            closed.append(open_runs.pop(key))
        if key not in open_runs:
            open_runs[key], filled[key] = [], 0
        open_runs[key].append(member)
        filled[key] += size
    yield from sorted([*closed, *open_runs.values()], key=lambda members: -members[-1])


def _flat(specs: Sequence[ParameterSpec], world_size: int) -> tuple[list[int], list[int], list[int]]:
    offsets, end = _offsets(spec.size for spec in specs)
    part = -(-end // (world_size * ALIGNMENT)) * ALIGNMENT
    return list(range(len(specs))), offsets, [rank * part for rank in range(world_size + 1)]


def _whole(specs: Sequence[ParameterSpec], world_size: int) -> tuple[list[int], list[int], list[int]]:
    """Longest processing time first: each parameter, the largest first, to the rank that has the least."""
    owned: list[list[int]] = [[] for _ in range(world_size)]
    loads = [0] * world_size
    for place in sorted(range(len(specs)), key=lambda place: (-specs[place].size, place)):
        owner = min(range(world_size), key=lambda rank: (loads[rank], rank))
        owned[owner].append(place)
        loads[owner] += specs[place].size
    order = [place for places in owned for place in sorted(places)]
    offsets, _ = _offsets(specs[place].size for place in order)
    bounds = [0]
    for load in loads:
        bounds.append(bounds[-1] + load)
    return order, offsets, bounds


def _offsets(sizes: Iterable[int]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += size
    return offsets, end
