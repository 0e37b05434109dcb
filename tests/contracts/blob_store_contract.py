"""The contract of `BlobStore` as tests: every implementation inherits this suite and says how one is made."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

import pytest

from shardkeep_service.blob_store.blob_store import BlobInfo, BlobStore
from shardkeep_service.blob_store.errors import BlobExists, BlobMissing

BAD_KEYS = [
    "", "/", "a/", "/a", "a//b", "../a", "a/../b", "a/./b", "..", ".hidden", "A", "a b", "a\\b", "a\x00b", "a\n", "ä",
    "a%2fb", "a?b", "a#b", "c:/x", "a" * 301, "a/" + "b" * 201,
]  # fmt: skip


MIXED_KEYS = ["a-b/x", "b0", "a.b", "a/x", "a/y/z", "b/10", "a0", "ab/c", "b/1", "b/2"]
"""Names that begin with another folder's name: their order differs between stores."""
PLAIN_KEYS = ["a/x", "b/2/9", "a/y/z", "b/10/x", "c/d/e.1", "a/y/z0", "b/2/10", "c/d/e.10", "d", "c/d/e.2"]
"""Names as the service makes them: none begins with the name of a folder beside it."""


def big_body(size_bytes: int) -> memoryview:
    return memoryview(bytearray(os.urandom(size_bytes)))


class BlobStoreContract(ABC):
    """Subclass as `Test...` and implement `make_store`."""

    listed_keys: ClassVar[list[str]] = MIXED_KEYS
    """What the tests of order list; a store that sorts by folders says PLAIN_KEYS."""

    @abstractmethod
    def make_store(self, directory: Path) -> BlobStore: ...

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return self.make_store(tmp_path)

    @pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (3 << 20) + 17])
    def test_an_object_comes_back_as_it_was_put(self, store: BlobStore, size: int) -> None:
        body = big_body(size)
        store.put("prj_1/chunks/ab/x.1", body)
        out = memoryview(bytearray(size))
        store.read_into("prj_1/chunks/ab/x.1", 0, out)
        assert out == body
        assert store.size("prj_1/chunks/ab/x.1") == size

    def test_bytes_and_read_only_views_are_taken(self, store: BlobStore) -> None:
        store.put("a", memoryview(b"x" * (2 << 20)))
        assert store.size("a") == 2 << 20

    def test_putting_the_same_bytes_again_changes_nothing(self, store: BlobStore) -> None:
        store.put("a/b", memoryview(b"same"))
        store.put("a/b", memoryview(b"same"))
        assert [info.key for info in store.list("")] == ["a/b"]

    @pytest.mark.parametrize("other", [b"", b"othe", b"other", b"one"])
    def test_other_bytes_under_a_key_are_refused_and_the_first_stay(self, store: BlobStore, other: bytes) -> None:
        store.put("a/b", memoryview(b"ones"))
        with pytest.raises(BlobExists):
            store.put("a/b", memoryview(other))
        out = memoryview(bytearray(4))
        store.read_into("a/b", 0, out)
        assert bytes(out) == b"ones"

    def test_parts_are_read_from_any_offset(self, store: BlobStore) -> None:
        store.put("a", memoryview(bytes(range(100))))
        out = memoryview(bytearray(10))
        store.read_into("a", 90, out)
        assert bytes(out) == bytes(range(90, 100))
        store.read_into("a", 100, memoryview(bytearray(0)))

    def test_reading_past_the_end_is_missing_and_says_the_size(self, store: BlobStore) -> None:
        store.put("a", memoryview(bytes(100)))
        with pytest.raises(BlobMissing, match="100"):
            store.read_into("a", 95, memoryview(bytearray(6)))
        with pytest.raises(BlobMissing, match="100"):
            list(store.stream("a", 0, 101, piece_bytes=10))

    def test_a_stream_gives_pieces_of_at_most_the_size_asked(self, store: BlobStore) -> None:
        store.put("a", memoryview(bytes(range(100))))
        pieces = [bytes(piece) for piece in store.stream("a", 5, 90, piece_bytes=40)]
        assert [len(piece) for piece in pieces] == [40, 40, 10]
        assert b"".join(pieces) == bytes(range(5, 95))

    def test_absent_objects_are_missing_everywhere(self, store: BlobStore) -> None:
        assert store.size("nothing/here") is None
        with pytest.raises(BlobMissing):
            store.read_into("nothing/here", 0, memoryview(bytearray(1)))
        with pytest.raises(BlobMissing):
            list(store.stream("nothing/here", 0, 1, piece_bytes=1))

    def test_deleting_is_repeatable_and_leaves_the_neighbours(self, store: BlobStore) -> None:
        for key in ("a/b/one", "a/b/two", "a/c"):
            store.put(key, memoryview(b"x"))
        store.delete(["a/b/one"])
        store.delete(["a/b/one"])
        store.delete(["never/was"])
        assert [info.key for info in store.list("")] == ["a/b/two", "a/c"]

    def test_a_deleted_key_can_be_put_again(self, store: BlobStore) -> None:
        store.put("a/b/c", memoryview(b"one"))
        store.delete(["a/b/c"])
        store.put("a/b/c", memoryview(b"two"))
        assert store.size("a/b/c") == 3

    def test_a_list_is_in_key_order_and_has_sizes(self, store: BlobStore) -> None:
        for size, key in enumerate(self.listed_keys):
            store.put(key, memoryview(bytes(size)))
        found = list(store.list(""))
        assert [info.key for info in found] == sorted(self.listed_keys)
        assert BlobInfo(self.listed_keys[3], 3) in found

    def test_a_list_gives_every_object_once_and_goes_on_in_its_own_order(self, store: BlobStore) -> None:
        for key in MIXED_KEYS:
            store.put(key, memoryview(b"x"))
        found = [info.key for info in store.list("")]
        assert sorted(found) == sorted(MIXED_KEYS)
        for position, key in enumerate(found):
            assert [info.key for info in store.list("", after=key)] == found[position + 1 :], key

    @pytest.mark.parametrize(
        ("prefix", "keys"),
        [
            ("a", ["a/b/1", "a/b/2", "ab"]),
            ("a/", ["a/b/1", "a/b/2"]),
            ("a/b", ["a/b/1", "a/b/2"]),
            ("a/b/", ["a/b/1", "a/b/2"]),
            ("a/b/2", ["a/b/2"]),
            ("a/b/2/", []),
            ("b", ["b"]),
            ("zzz/zzz", []),
        ],
    )
    def test_a_prefix_matches_text_and_not_directories(self, store: BlobStore, prefix: str, keys: list[str]) -> None:
        for key in ("a/b/1", "a/b/2", "ab", "b"):
            store.put(key, memoryview(b"x"))
        assert [info.key for info in store.list(prefix)] == keys

    @pytest.mark.parametrize("prefix", ["", "a", "a/", "b/"])
    def test_a_list_goes_on_after_any_key_there_is_or_not(self, store: BlobStore, prefix: str) -> None:
        keys = sorted(self.listed_keys)
        for key in keys:
            store.put(key, memoryview(b"x"))
        folder = ["a/y"] if self.listed_keys is MIXED_KEYS else []  # nor is a folder's name a key where it could be one
        for after in ("", *keys, *folder, "a/", "a/y/", "a/y/zz", "b/", "b/1/x", "zz"):
            expected = [key for key in keys if key.startswith(prefix) and key > after]
            assert [info.key for info in store.list(prefix, after=after)] == expected, after

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_E186_a_key_that_is_not_one_is_refused_by_every_method(self, store: BlobStore, key: str) -> None:
        for call in (
            lambda: store.put(key, memoryview(b"x")),
            lambda: store.read_into(key, 0, memoryview(bytearray(1))),
            lambda: next(iter(store.stream(key, 0, 1, piece_bytes=1))),
            lambda: store.size(key),
            lambda: store.delete([key]),
        ):
            with pytest.raises(ValueError, match="key"):
                call()

    @pytest.mark.parametrize("prefix", ["..", "a/../b", "/a", "a\\", "A", "a\x00"])
    def test_E186_a_prefix_that_begins_no_key_is_refused(self, store: BlobStore, prefix: str) -> None:
        with pytest.raises(ValueError, match="key"):
            list(store.list(prefix))

    def test_many_threads_putting_one_key_all_succeed(self, store: BlobStore) -> None:
        body = big_body(100_000)
        failures: list[BaseException] = []

        def put() -> None:
            try:
                store.put("a/b/c", body)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=put) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert [info.size_bytes for info in store.list("")] == [100_000]

    def test_puts_and_deletes_in_one_directory_do_not_disturb_each_other(self, store: BlobStore) -> None:
        failures: list[BaseException] = []

        def churn(name: str) -> None:
            try:
                for turn in range(40):
                    store.put(f"dir/sub/{name}.{turn}", memoryview(b"x"))
                    store.delete([f"dir/sub/{name}.{turn}"])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=churn, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert list(store.list("")) == []
