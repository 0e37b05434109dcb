"""Tiles on their way: read as they were written last, however many sets of buffers there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shardkeep.errors import StateError
from shardkeep.zero.scratch_file import ScratchFile
from shardkeep.zero.tile_traffic import BufferSet, Fetch, TileTraffic


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ScratchFile]:
    made = ScratchFile(tmp_path, rank=0)
    yield made
    made.close()


class Slow(ScratchFile):
    """One whose writes are seen to begin and to end."""

    begun = 0
    ended = 0

    def write(self, offset: int, data: memoryview) -> None:
        self.begun += 1
        for _ in range(2000):
            super().write(offset, data)
        self.ended += 1


def fill(buffers: BufferSet, value: int) -> None:
    buffers.tensor(0, 16, torch.float32).fill_(value)


def traffic_of(file: ScratchFile, sets: int) -> TileTraffic:
    traffic = TileTraffic(file)
    traffic.budget_bytes = sets * 4096
    traffic.reserve(4096)
    return traffic


@pytest.mark.parametrize("sets", [1, 2, 3])
def test_each_tile_is_read_as_it_was_written_last(file: ScratchFile, sets: int) -> None:
    traffic = traffic_of(file, sets)
    moves = [((file.allocate(64), 0),) for _ in range(7)]
    for turn in range(3):
        for place, move in enumerate(moves):
            buffers = traffic.take(Fetch((0, place), move))
            if place + 1 < len(moves):
                traffic.read_ahead(Fetch((0, place + 1), moves[place + 1]))
            assert buffers.tensor(0, 16, torch.float32).tolist() == [place + 10.0 * turn if turn else 0.0] * 16
            fill(buffers, place + 10 * (turn + 1))
            traffic.put_back(buffers, (0, place), move)
    traffic.drain()

    assert traffic.held_bytes == sets * 4096
    traffic.close()


def test_what_was_read_ahead_and_then_written_is_read_again(file: ScratchFile) -> None:
    traffic = traffic_of(file, 3)
    move = ((file.allocate(64), 0),)
    writing = traffic.take(Fetch((0, 0), ()))
    traffic.read_ahead(Fetch((0, 0), move))
    fill(writing, 5)
    traffic.put_back(writing, (0, 0), move)

    assert traffic.take(Fetch((0, 0), move)).tensor(0, 16, torch.float32).tolist() == [5.0] * 16
    traffic.close()


def test_draining_waits_for_what_is_written_behind(tmp_path: Path) -> None:
    file = Slow(tmp_path, rank=0)
    traffic = traffic_of(file, 3)
    move = ((file.allocate(64), 0),)
    traffic.put_back(traffic.take(Fetch((0, 0), ())), (0, 0), move)

    traffic.drain()

    assert (file.begun, file.ended) == (1, 1)
    traffic.close()
    file.close()


def test_fault_51_draining_with_nothing_on_its_way_does_nothing(file: ScratchFile) -> None:
    traffic = traffic_of(file, 3)

    traffic.drain()
    traffic.put_back(traffic.take(Fetch((0, 0), ())), (0, 0), ())
    traffic.drain()

    traffic.close()


def test_a_write_that_failed_behind_is_raised_by_the_next_to_wait(
    file: ScratchFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = traffic_of(file, 2)
    move = ((file.allocate(64), 0),)
    buffers = traffic.take(Fetch((0, 0), ()))
    with monkeypatch.context() as patched:
        patched.setattr(file, "write", lambda *_: (_ for _ in ()).throw(StateError("full")))
        traffic.put_back(buffers, (0, 0), move)
        with pytest.raises(StateError, match="full"):
            traffic.take(Fetch((0, 0), move))
    traffic.reset()

    traffic.put_back(traffic.take(Fetch((0, 0), move)), (0, 0), move)
    traffic.drain()
    traffic.close()
