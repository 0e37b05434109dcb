"""Parameters cut as one flat, padded buffer, as ZeRO cuts them: any number of ranks reads what any number saved."""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Iterator

import pytest
import torch

import shardkeep as sk
from shardkeep.format.regions import Region, regions_of_flat_range
from shardkeep.format.segments import SliceKind
from shardkeep.pytorch.tensors import byte_view, fill_from
from shardkeep.store.checkpoint import Checkpoint, ReadRequest
from shardkeep.store.connect import Client
from shardkeep.store.world import World
from tests.distributed.grid.contents import content, difference
from tests.service_process import ServiceProcess

SHAPES: dict[str, tuple[int, ...]] = {"first": (7, 3), "scale": (1,), "bias": (5,), "last": (2, 3, 5)}
"""57 elements, which 2, 4, 5 and 7 ranks pad."""
SLOTS: dict[str, torch.dtype] = {"weight": torch.float32, "exp_avg": torch.float32, "exp_avg_sq": torch.bfloat16}
SAVED_ON = (1, 2, 3, 4, 8)
LOADED_ON = (1, 2, 3, 5, 7, 80)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(shared_service: ServiceProcess) -> Iterator[Client]:
    with sk.connect(shared_service.url, shared_service.token) as connected:
        yield connected


def regions_of(rank: int, world_size: int, shapes: dict[str, tuple[int, ...]]) -> Iterator[tuple[str, Region]]:
    """The boxes that a rank's part of the flat buffer holds, without the padding at the end of the last rank's."""
    each = -(-sum(map(math.prod, shapes.values())) // world_size)
    start = 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        low, high = max(start, rank * each) - start, min(start + size, (rank + 1) * each) - start
        if low < high:
            for region in regions_of_flat_range(shape, low, high):
                yield name, region
        start += size


def part(tensor: torch.Tensor, region: Region) -> torch.Tensor:
    return tensor[tuple(slice(start, end) for start, end in zip(region.offsets, region.ends, strict=True))]


def save(client: Client, run: str, world_size: int, shapes: dict[str, tuple[int, ...]]) -> Checkpoint:
    """Every rank's part, each as a rank of one launch."""
    launch_id = secrets.token_hex(16)
    opened = client.run(run)
    attempts = [opened.begin_attempt(World(rank, world_size, launch_id), 0) for rank in range(world_size)]
    handles = []
    for rank, attempt in enumerate(attempts):
        attempt.decide_resume()
        with attempt.start_save(1, expected_bytes=1 << 16) as writer:
            for (name, shape), (slot, dtype) in itertools.product(shapes.items(), SLOTS.items()):
                nothing = (0,) * len(shape)
                fill = fill_from(torch.empty(nothing, dtype=dtype))
                stored = str(dtype).removeprefix("torch.")
                writer.stage(f"{name}.{slot}", stored, shape, Region(nothing, nothing), SliceKind.OPTIMIZER, fill=fill)
            for name, region in regions_of(rank, world_size, shapes):
                for slot, dtype in SLOTS.items():
                    held = part(content(f"{name}.{slot}", shapes[name], dtype), region)
                    stored = str(dtype).removeprefix("torch.")
                    writer.stage(
                        f"{name}.{slot}", stored, shapes[name], region, SliceKind.OPTIMIZER, fill=fill_from(held)
                    )
            handles.append(writer.finish([], {}, {}))
    committed = [handle.wait(60) for handle in handles]
    for attempt in attempts:
        attempt.close()
    return committed[0]


def load(checkpoint: Checkpoint, world_size: int, shapes: dict[str, tuple[int, ...]]) -> int:
    """Read every rank's part and compare; the number of elements read."""
    seen = 0
    for rank in range(world_size):
        wanted = [(name, region, slot) for name, region in regions_of(rank, world_size, shapes) for slot in SLOTS]
        memory = [torch.full(region.sizes, 99, dtype=SLOTS[slot]) for _, region, slot in wanted]
        requests = [
            ReadRequest(f"{name}.{slot}", region, byte_view(held))
            for (name, region, slot), held in zip(wanted, memory, strict=True)
        ]
        checkpoint.read(requests)
        for (name, region, slot), held in zip(wanted, memory, strict=True):
            expected = part(content(f"{name}.{slot}", shapes[name], SLOTS[slot]), region)
            assert difference(held, expected) == "", (name, slot, rank)
            seen += held.numel()
    return seen


@pytest.mark.parametrize("saved_on", SAVED_ON)
def test_E31_E32_E35_flat_parts_of_any_number_of_ranks_are_read_as_parts_of_any_other(
    client: Client, saved_on: int
) -> None:
    checkpoint = save(client, f"flat/on-{saved_on}", saved_on, SHAPES)

    total = sum(map(math.prod, SHAPES.values()))
    assert total == 57
    for loaded_on in LOADED_ON:
        assert load(checkpoint, loaded_on, SHAPES) == total * len(SLOTS)


def test_E41_ranks_without_any_element_take_part(client: Client) -> None:
    tiny: dict[str, tuple[int, ...]] = {"a": (2,), "b": (1, 3), "c": (1,)}
    checkpoint = save(client, "flat/tiny", 8, tiny)

    assert list(regions_of(7, 8, tiny)) == []
    assert load(checkpoint, 3, tiny) == 6 * len(SLOTS)
