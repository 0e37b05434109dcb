"""One rank of `bench.throughput`: the same state saved and loaded by Shardkeep and by its peers, in turns.

Started by `bench.throughput`, never by hand. Its readings go to `--report` + `.<rank>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import async_save as dcp_async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

import shardkeep as sk
from bench.sampler import Cost, Sampler
from bench.sharded_state import ShardedState, make_state
from bench.stopwatch import Stopwatch
from shardkeep.format.fingerprints import fingerprint
from shardkeep.pytorch.tensors import byte_view

_CODEC_NAMES = ("auto", "raw", "zstd", "planes")
_PLAIN_FILE_BYTES = 32 << 20


class Turns:
    """The operations, one method each."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.state: ShardedState = make_state(arguments.bytes)
        self.folder: Path = arguments.folder
        self.watch = Stopwatch(arguments.service_pid)
        self.step = 0
        self.stored_share = 1.0
        run = sk.connect().run("bench/throughput")
        self.keeper = sk.Checkpointer(
            run, trained=self.state.trained, frozen=self.state.frozen, optimizer=self.state.optimizer,
            codec=arguments.codec, signals=False,
        )  # fmt: skip

    def save(self, operation: str, repetition: int) -> None:
        """Shardkeep: staged, then committed."""
        self.step += 1
        self.watch.measure(operation, repetition, lambda: self.keeper.save(self.step), self.keeper.wait)

    def note_stored_share(self) -> None:
        """Stored bytes of the last save for each byte of its tensors: below 1 where a codec was at work."""
        checkpoint = self.keeper.wait()
        if checkpoint is not None and checkpoint.info.stored_bytes and checkpoint.info.raw_bytes:
            self.stored_share = checkpoint.info.stored_bytes / checkpoint.info.raw_bytes

    def save_plain_files(self, repetition: int) -> None:
        """No checkpoint at all: the shards written to files of about a chunk's size and synced, what the disk takes."""
        directory = self.folder / f"plain.{dist.get_rank()}"
        directory.mkdir()
        shards = [byte_view(shard) for shard in self.state.shards()]
        files = list(batched_by_size(shards, _PLAIN_FILE_BYTES))

        def write() -> None:
            for number, parts in enumerate(files):
                with (directory / str(number)).open("wb") as file:
                    file.writelines(parts)
                    file.flush()
                    os.fsync(file.fileno())

        self.watch.measure("plain files, fsync", repetition, write)
        shutil.rmtree(directory)

    def save_dcp(self, operation: str, repetition: int, *, sync_files: bool) -> None:
        """DCP's file system writer."""
        writer = FileSystemWriter(self._dcp_directory(), sync_files=sync_files)
        self.watch.measure(operation, repetition, lambda: dcp_save(self.state.tensors(), storage_writer=writer))

    def save_dcp_async(self, repetition: int) -> None:
        """DCP's async_save, with synced files."""
        writer = FileSystemWriter(self._dcp_directory(), sync_files=True)
        futures: list[Future[Any]] = []

        def begin() -> None:
            answer = dcp_async_save(self.state.tensors(), storage_writer=writer)
            assert isinstance(answer, Future)
            futures.append(answer)

        self.watch.measure("DCP async_save", repetition, begin, lambda: [future.result() for future in futures])

    def load(self, operation: str, repetition: int) -> None:
        """Shardkeep: a whole resume, every segment verified."""
        self._load(operation, repetition, self.keeper.resume)

    def load_dcp(self, operation: str, repetition: int) -> None:
        """DCP's file system reader, from the directory saved last."""
        reader = FileSystemReader(self._dcp_path)
        self._load(operation, repetition, lambda: dcp_load(dict(self.state.tensors()), storage_reader=reader))

    def drop_caches(self, directory: Path) -> None:
        """Takes the files below a directory out of the page cache."""
        if dist.get_rank() == 0:
            os.sync()
            for path in directory.rglob("*"):
                if path.is_file():
                    descriptor = os.open(path, os.O_RDONLY)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(descriptor)

    @property
    def _dcp_path(self) -> Path:
        return self.folder / "dcp"

    def _load(self, operation: str, repetition: int, load: Callable[[], object]) -> None:
        before = [fingerprint(byte_view(shard)) for shard in self.state.shards()]
        for shard in self.state.shards():
            shard.zero_()
        self.watch.measure(operation, repetition, load)
        if [fingerprint(byte_view(shard)) for shard in self.state.shards()] != before:
            raise SystemExit(f"{operation} brought back other bytes")

    def _dcp_directory(self) -> Path:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(self._dcp_path, ignore_errors=True)
        dist.barrier()
        return self._dcp_path


def batched_by_size(parts: Sequence[memoryview], size_bytes: int) -> Iterator[list[memoryview]]:
    """The parts in their order, in batches of about that size."""
    batch: list[memoryview] = []
    for part in parts:
        batch.append(part)
        if sum(item.nbytes for item in batch) >= size_bytes:
            yield batch
            batch = []
    if batch:
        yield batch


def run(turns: Turns, repetitions: int) -> None:
    """Everything, peers in turns; repetition 0 of each is the first ever.

    Another one begins each time: what follows an operation that freed page cache gets memory more cheaply.
    """
    saves: list[Callable[[int], None]] = [
        lambda repetition: turns.save("save", repetition),
        turns.save_plain_files,
        lambda repetition: turns.save_dcp("DCP save, sync_files", repetition, sync_files=True),
        lambda repetition: turns.save_dcp("DCP save, unsynced", repetition, sync_files=False),
        turns.save_dcp_async,
    ]
    for repetition in range(repetitions + 1):
        turns.state.change(frozen=True)
        first = repetition % len(saves)
        for save in (*saves[first:], *saves[:first]):
            save(repetition)
    turns.note_stored_share()
    for repetition in range(repetitions + 1):
        turns.state.change(frozen=False)
        turns.save("save, frozen part unchanged", repetition)
    turns.save_dcp("DCP save, sync_files", repetitions + 1, sync_files=True)
    for repetition in range(repetitions + 1):
        for state in ("cold", "cached"):
            if state == "cold":
                turns.drop_caches(turns.folder / "data" / "blobs")
                turns.drop_caches(turns.folder / "dcp")
            turns.load(f"load, {state}", repetition)
            turns.load_dcp(f"DCP load, {state}", repetition)


def run_profiled(turns: Turns, what: str, repetitions: int) -> Sampler:
    """Only Shardkeep's saves, or loads of what such a run saved before; the first is left out of the profile."""
    sampler = Sampler()

    def once(repetition: int) -> None:
        if what == "load":
            turns.load("load, cached", repetition)
            return
        turns.state.change(frozen=True)
        turns.save("save", repetition)

    if what == "load":
        turns.keeper.resume()
    once(0)
    with sampler:
        for repetition in range(1, repetitions + 1):
            once(repetition)
    return sampler


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--service-pid", type=int, required=True)
    parser.add_argument("--codec", choices=_CODEC_NAMES, default="auto")
    parser.add_argument("--profile", choices=("save", "load"))
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    turns = Turns(arguments)
    costs: list[Cost] = []
    if arguments.profile:
        costs = run_profiled(turns, arguments.profile, arguments.repetitions).costs()
    else:
        run(turns, arguments.repetitions)
    turns.keeper.close()
    report = {
        "total_bytes": turns.state.total_bytes,
        "stored_share": turns.stored_share,
        "readings": [asdict(reading) for reading in turns.watch.readings],
        "costs": [asdict(cost) for cost in costs],
    }
    Path(f"{arguments.report}.{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
