from __future__ import annotations

import logging
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardkeep.errors import ConnectionFailed
from shardkeep.protocol.messages import InventoryAnswer, PostInventory
from shardkeep.pytorch.unused_names import AskedRanks


class Board:
    """The inventories of a launch, each rank in a thread of its own."""

    def __init__(self, world_size: int) -> None:
        self.posted: list[list[str]] = []
        self.all_posted = threading.Barrier(world_size)
        self.waited = 0

    def post_inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        assert [tensor.name for tensor in message.tensors] == sorted({tensor.name for tensor in message.tensors})
        self.posted.append([tensor.name for tensor in message.tensors])
        return InventoryAnswer(complete=False)

    def inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
        self.post_inventory(layout, message)
        self.waited += 1
        self.all_posted.wait(10)
        counts: Counter[str] = Counter(name for names in self.posted for name in names)
        return InventoryAnswer(complete=True, holders=[counts[tensor.name] for tensor in message.tensors])


def ask(*lacking: list[str]) -> list[list[str]]:
    board = Board(len(lacking))
    with ThreadPoolExecutor(len(lacking)) as pool:
        asked = [pool.submit(AskedRanks(board, world_size=len(lacking)).of_all_ranks, names) for names in lacking]
        return [future.result(10) for future in asked]


def test_a_name_is_unused_only_if_every_rank_lacks_it() -> None:
    assert ask(["b", "gone", "a"], ["gone", "c"], ["gone", "b"]) == [["gone"]] * 3


def test_a_rank_that_lacks_nothing_says_so_and_does_not_wait() -> None:
    board = Board(2)

    assert AskedRanks(board, world_size=2).of_all_ranks([]) == []
    assert (board.posted, board.waited) == ([[]], 0)


def test_alone_nobody_is_asked() -> None:
    board = Board(1)

    assert AskedRanks(board, world_size=1).of_all_ranks(["a"]) == ["a"]
    assert board.posted == []


def test_a_rank_whose_resume_fails_answers_once_and_never_fails_of_that(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(Board):
        def post_inventory(self, layout: int, message: PostInventory) -> InventoryAnswer:
            super().post_inventory(layout, message)
            raise ConnectionFailed("the service is gone")

    gone = Gone(2)
    others = AskedRanks(gone, world_size=2)
    with caplog.at_level(logging.WARNING, "shardkeep"):
        others.keep_nobody_waiting()
        others.keep_nobody_waiting()

    assert gone.posted == [[]]
    assert "the service is gone" in caplog.text
