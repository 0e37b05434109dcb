"""A bounded cache: each value is made once, the longest unused goes, and what fails is tried again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardkeep_service.checkpoints.bounded_cache import BoundedCache


def test_the_longest_unused_goes_and_one_too_large_is_kept_alone() -> None:
    cache = BoundedCache[str, bytes](len, limit_bytes=4)
    cache.get("a", lambda: b"aa")
    cache.get("b", lambda: b"bb")
    cache.get("a", lambda: pytest.fail("it is kept"))
    cache.get("c", lambda: b"cc")

    assert (cache.keys, cache.held_bytes) == (["a", "c"], 4)
    cache.get("d", lambda: b"d" * 10)
    assert (cache.keys, cache.held_bytes) == (["d"], 10)
    cache.clear()
    assert (cache.keys, cache.held_bytes) == ([], 0)


def test_a_value_is_made_once_however_many_want_it() -> None:
    cache = BoundedCache[str, bytes](len, limit_bytes=4)
    made: list[int] = []
    barrier = threading.Barrier(8)

    def make() -> bytes:
        made.append(1)
        return b"x"

    def want(_: int) -> bytes:
        barrier.wait(60)
        return cache.get("a", make)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(want, range(8))) == {b"x"}
    assert made == [1]


def test_what_could_not_be_made_is_tried_again() -> None:
    cache = BoundedCache[str, bytes](len, limit_bytes=4)

    def fail() -> bytes:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            cache.get("a", fail)
    assert cache.get("a", lambda: b"a") == b"a"
