"""Staging memory: bounded, reused, never handed out twice."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pytest

from shardkeep.errors import ConfigurationError
from shardkeep.uploader.arena import EXTENT_BYTES, Arena, Lease
from shardkeep.uploader.settings import LEAST_STAGING_BYTES, UploadSettings

MIB = 1 << 20


def reserve(arena: Arena, size: int) -> Lease:
    lease = arena.reserve(size, before_waiting=lambda: None)
    assert lease is not None
    return lease


def take_all(arena: Arena, size: int) -> list[Lease]:
    leases = []
    while size:
        leases.append(reserve(arena, size))
        size -= leases[-1].view.nbytes
    return leases


def test_a_long_slice_comes_in_whole_segments_until_its_rest() -> None:
    sizes = [lease.view.nbytes for lease in take_all(Arena(None), EXTENT_BYTES + 5 * MIB + 3)]
    assert sum(sizes) == EXTENT_BYTES + 5 * MIB + 3
    assert all(size % MIB == 0 for size in sizes[:-1])


def test_leases_never_overlap_and_small_ones_fill_holes() -> None:
    arena = Arena(None)
    rng = np.random.default_rng(0)
    leases = []
    for number in range(400):
        for lease in take_all(arena, int(rng.choice([8, 5000, 300_000, 3 * MIB + 7]))):
            lease.view[:8] = number.to_bytes(8, "little") if lease.view.nbytes >= 8 else b""
            leases.append((number, lease))
    assert all(int.from_bytes(lease.view[:8], "little") == number for number, lease in leases if lease.view.nbytes >= 8)
    staged = sum(lease.view.nbytes for _, lease in leases)
    assert arena.made_bytes < 1.05 * staged + EXTENT_BYTES


def test_memory_is_reused_by_the_next_save() -> None:
    arena = Arena(None)
    made = []
    for _ in range(3):
        arena.begin()
        for lease in take_all(arena, 100 * MIB):
            arena.release(lease.extent)
        made.append(arena.made_bytes)
    assert made[0] == made[1] == made[2]
    arena.begin()
    arena.release_memory()
    assert arena.made_bytes == 0


def test_the_budget_is_never_exceeded_and_waiting_ends_when_memory_is_released() -> None:
    arena = Arena(16 * MIB)
    leases = take_all(arena, 16 * MIB)
    asked = threading.Event()
    got: list[Lease | None] = []
    waiter = threading.Thread(target=lambda: got.append(arena.reserve(MIB, before_waiting=asked.set)))
    waiter.start()
    assert asked.wait(60)
    assert arena.is_waited_for
    assert not got
    first = leases[0].extent
    for lease in leases:
        if lease.extent is first:
            arena.release(first)
    waiter.join(60)
    assert got[0] is not None
    assert arena.made_bytes <= 16 * MIB


def test_a_shared_lease_is_free_after_its_last_holder() -> None:
    arena = Arena(8 * MIB)
    leases = take_all(arena, 8 * MIB)
    arena.share(leases[0], 2)
    arena.release(leases[0].extent)
    assert leases[0].extent.leases == 1


def test_closing_ends_a_wait() -> None:
    arena = Arena(8 * MIB)
    take_all(arena, 8 * MIB)
    asked, got = threading.Event(), queue.Queue[Lease | None]()
    waiter = threading.Thread(target=lambda: got.put(arena.reserve(MIB, before_waiting=asked.set)))
    waiter.start()
    assert asked.wait(60)
    arena.close()
    assert got.get(timeout=60) is None
    waiter.join(60)


def test_a_budget_too_small_to_work_with_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="8 MiB"):
        UploadSettings(staging_bytes=LEAST_STAGING_BYTES - 1)
    with pytest.raises(ConfigurationError, match="codec"):
        UploadSettings(codec="gzip")  # type: ignore[arg-type]
