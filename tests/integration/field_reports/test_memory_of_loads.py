"""Memory while loading: each reader fetches its own byte ranges into its own memory, segment by segment."""

from __future__ import annotations

import functools
import gc
import tracemalloc
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES
from shardkeep.planning.range_reads import LONGEST_BYTES
from shardkeep.store.reading import ReadRequest
from tests.faulty_proxy import FaultyProxy
from tests.service_process import ServiceProcess

MEBIBYTE = 1 << 20
READERS = 2
"""Connections, each of which may hold one range, encoded."""
Codec = Literal["raw", "planes"]
CHUNK_READS = r"^GET /v1/checkpoints/[^/]+/chunks/"


def peak_of(work: Callable[[], Any]) -> int:
    """The most bytes that Python and numpy held at once beside what they held before."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def connect(url: str, service: ServiceProcess, codec: Codec) -> sk.Client:
    return sk.connect(url, service.token, codec=codec, connections=READERS)


def floats(seed: int, size_bytes: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(size_bytes // 4, np.float32)


@pytest.mark.parametrize("codec", ["raw", "planes"])
def test_E180_each_of_eight_ranks_fetches_only_its_part_of_an_unsharded_tensor_into_its_own_memory(
    shared_service: ServiceProcess, codec: Codec
) -> None:
    world, shard_bytes = 8, 6 * MEBIBYTE
    whole = floats(1, world * shard_bytes).reshape(world, -1)
    with (
        FaultyProxy(shared_service.port) as proxy,
        connect(shared_service.url, shared_service, codec) as client,
        connect(proxy.url, shared_service, codec) as watched,
    ):
        saved = client.run(f"memory/unsharded-{codec}").save(1, {"w": whole}).wait(60)
        [info] = saved.tensors()
        for rank in (0, 3, 7):
            out = np.zeros(shard_bytes // 4, np.float32)
            read = ReadRequest(info.name, Region((rank, 0), (1, shard_bytes // 4)), out.view(np.uint8).data)
            peak = peak_of(functools.partial(saved.read, [read]))
            np.testing.assert_array_equal(out, whole[rank])
            assert peak + shard_bytes < 2 * shard_bytes, "the cap of a device: twice the shard"
            before = proxy.sent_bytes(CHUNK_READS)
            watched.checkpoint(saved.id).read([read])
            assert proxy.sent_bytes(CHUNK_READS) - before <= shard_bytes + 2 * SEGMENT_BYTES


@pytest.mark.parametrize("codec", ["raw", "planes"])
def test_E183_a_load_streams_and_its_peak_beside_the_state_is_less_than_one_tensor(
    shared_service: ServiceProcess, codec: Codec
) -> None:
    tensor_bytes = READERS * (LONGEST_BYTES + 4 * MEBIBYTE)
    state = {f"w{number}": floats(10 + number, tensor_bytes) for number in range(3)}
    with connect(shared_service.url, shared_service, codec) as client:
        checkpoint = client.run(f"memory/streams-{codec}").save(1, state).wait(60)
        target = {name: np.zeros_like(value) for name, value in state.items()}
        assert peak_of(lambda: checkpoint.load_into(target)) < tensor_bytes
        np.testing.assert_equal(target, state)


def test_E181_stored_bytes_carry_no_device_and_the_caller_chooses_where_they_go(client: sk.Client) -> None:
    import torch

    state: dict[str, Any] = {"model": {"w": torch.arange(6.0).reshape(2, 3)}, "kept": {"t": torch.ones(4)}}
    checkpoint = client.run("memory/devices").save(1, state).wait(60)
    stored = client.service.manifest(checkpoint.id, 0)
    assert b"cuda" not in stored
    assert b"device" not in stored
    given: dict[str, Any] = {"model": {"w": torch.zeros(2, 3)}, "kept": {"t": torch.zeros(4)}}
    checkpoint.load_into(given)
    assert torch.equal(given["model"]["w"], state["model"]["w"])
    assert given["kept"]["t"].device.type == "cpu"
    plain: dict[str, Any] = {"model": {"w": np.zeros((2, 3), np.float32)}, "kept": {"t": np.zeros(4, np.float32)}}
    checkpoint.load_into(plain)
    np.testing.assert_array_equal(plain["model"]["w"], state["model"]["w"].numpy())
