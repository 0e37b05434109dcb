"""The contract of every shard: its reduced gradient, its tiles and its state, whatever memory they are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from shardkeep.zero.collectives import Collectives, PendingSum
from shardkeep.zero.inner import StepOptions
from shardkeep.zero.layout import Bucket, Layout, ParameterSpec
from shardkeep.zero.parameter_memory import WholeMemory
from shardkeep.zero.shard_builder import ShardBuilder
from shardkeep.zero.shards import Shard, StatePart

SHAPES = {"first": (29, 31), "second": (), "third": (700,)}
DIVISOR = 2
OPTIONS: dict[str, Any] = {"lr": 1e-2}


class ShardContract:
    """Subclasses say where a shard is kept, in a fixture `where`. There is one bucket of three parameters."""

    @pytest.fixture
    def layout(self) -> Layout:
        return Layout("flat", 1, 1 << 20)

    @pytest.fixture
    def bucket(self, layout: Layout) -> Bucket:
        (bucket,) = layout.append([ParameterSpec(name, shape, "torch.float32", 4) for name, shape in SHAPES.items()])
        return bucket

    @pytest.fixture
    def parameters(self, bucket: Bucket) -> list[nn.Parameter]:
        shapes = list(SHAPES.values())
        return [
            nn.Parameter(torch.randn(shapes[one], generator=numbers(one)).to(self.dtype)) for one in bucket.parameters
        ]

    @pytest.fixture
    def memory(self, bucket: Bucket, parameters: list[nn.Parameter]) -> WholeMemory:
        return WholeMemory(bucket, parameters, Collectives())

    @pytest.fixture
    def shard(self, layout: Layout, bucket: Bucket, memory: WholeMemory, where: Any) -> Shard:
        builder = ShardBuilder(torch.optim.AdamW, OPTIONS, layout, [0, 0, 0], where, DIVISOR)
        return builder.shard(bucket, bucket.part(0), memory, torch.float32)

    dtype = torch.float32

    # --- gradients ---------------------------------------------------------------------------------------------------

    def test_it_has_no_gradient_before_one_arrived(self, shard: Shard) -> None:
        assert list(shard.gradients(write=False)) == []
        assert list(shard.tiles(step=True)) == []

    def test_what_arrives_is_divided_and_added_up(self, shard: Shard, bucket: Bucket) -> None:
        first, second = values_of(bucket, 1), values_of(bucket, 2)
        shard.add_gradient(arrived(first))
        assert torch.equal(gradient(shard, bucket), first / DIVISOR)
        shard.add_gradient(arrived(second))
        assert torch.equal(gradient(shard, bucket), first / DIVISOR + second / DIVISOR)

    def test_pieces_cover_the_part_in_order(self, shard: Shard, bucket: Bucket) -> None:
        shard.add_gradient(arrived(values_of(bucket, 1)))
        at = 0
        for begin, values in shard.gradients(write=False):
            assert (begin, values.dtype) == (at, torch.float32)
            at += values.numel()
        assert at == bucket.size

    def test_what_is_written_into_pieces_is_kept(self, shard: Shard, bucket: Bucket) -> None:
        given = values_of(bucket, 1)
        shard.add_gradient(arrived(given))
        for _, values in shard.gradients(write=True):
            values.mul_(3.0)
        assert torch.equal(gradient(shard, bucket), given / DIVISOR * 3.0)

    def test_a_dropped_gradient_is_gone_and_the_next_is_taken_as_it_is(self, shard: Shard, bucket: Bucket) -> None:
        shard.add_gradient(arrived(values_of(bucket, 1)))
        shard.drop_gradient()
        assert list(shard.gradients(write=False)) == []
        shard.add_gradient(arrived(values_of(bucket, 2)))
        assert torch.equal(gradient(shard, bucket), values_of(bucket, 2) / DIVISOR)

    # --- steps and state ---------------------------------------------------------------------------------------------

    def test_steps_are_those_of_the_optimizer_on_whole_parameters(
        self, shard: Shard, bucket: Bucket, memory: WholeMemory
    ) -> None:
        plain = nn.Parameter(whole(shard, bucket))
        optimizer = torch.optim.AdamW([plain], **OPTIONS)
        for number in range(3):
            plain.grad = values_of(bucket, number) / DIVISOR
            optimizer.step()
            step(shard, bucket, memory, number)
        assert torch.equal(whole(shard, bucket), plain.detach())
        for key in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(whole(shard, bucket, key), optimizer.state[plain][key])

    def test_there_is_no_state_before_the_first_step(self, shard: Shard, bucket: Bucket) -> None:
        for parameter in bucket.parameters:
            for part in shard.state_parts(parameter):
                assert (part.tensors, part.values) == ({}, {})

    def test_parts_are_the_elements_of_their_parameter_in_order(
        self, shard: Shard, bucket: Bucket, memory: WholeMemory
    ) -> None:
        step(shard, bucket, memory, 0)
        for parameter, size in zip(bucket.parameters, bucket.sizes, strict=True):
            at = 0
            for part in shard.state_parts(parameter):
                assert part.start == at
                assert part.master.numel() == part.stop - part.start
                assert {one.numel() for one in part.tensors.values()} == {part.stop - part.start}
                at = part.stop
            assert at == size

    def test_state_that_is_set_is_stepped_on(self, shard: Shard, bucket: Bucket, memory: WholeMemory) -> None:
        step(shard, bucket, memory, 0)
        before = {key: whole(shard, bucket, key) for key in ("exp_avg", "exp_avg_sq")}
        masters = whole(shard, bucket)
        step(shard, bucket, memory, 1)
        after = whole(shard, bucket)
        put(shard, bucket, masters, before, steps=1)
        assert torch.equal(whole(shard, bucket, "exp_avg"), before["exp_avg"])
        step(shard, bucket, memory, 1)
        assert torch.equal(whole(shard, bucket), after)

    def test_none_is_a_parameter_that_was_never_stepped(
        self, shard: Shard, bucket: Bucket, memory: WholeMemory
    ) -> None:
        step(shard, bucket, memory, 0)
        gone, kept, _ = bucket.parameters
        shard.set_state(gone, None, [dict(OPTIONS)])
        assert all(not part.tensors and not part.values for part in shard.state_parts(gone))
        assert all(part.tensors for part in shard.state_parts(kept))

    def test_masters_that_are_written_in_tiles_are_kept(
        self, shard: Shard, bucket: Bucket, memory: WholeMemory
    ) -> None:
        memory.write_own(0, torch.full((bucket.size,), 2.0, dtype=self.dtype))
        for tile in shard.tiles(step=False):
            memory.read_own(tile.begin, tile.master)
        assert torch.equal(whole(shard, bucket), torch.full((bucket.size,), 2.0)[: sum(bucket.sizes)])


def numbers(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def values_of(bucket: Bucket, seed: int) -> torch.Tensor:
    """A gradient for the whole bucket; zero in its padding."""
    values = torch.randn(bucket.size, generator=numbers(100 + seed))
    values[sum(bucket.sizes) :] = 0.0
    return values


def arrived(values: torch.Tensor) -> PendingSum:
    return PendingSum(values, values, 1, None)


def gradient(shard: Shard, bucket: Bucket) -> torch.Tensor:
    found = torch.zeros(bucket.size)
    for begin, values in shard.gradients(write=False):
        found[begin : begin + values.numel()] = values
    return found


def parts_in_order(shard: Shard, bucket: Bucket) -> Iterator[StatePart]:
    for parameter in bucket.parameters:
        yield from shard.state_parts(parameter)


def whole(shard: Shard, bucket: Bucket, key: str | None = None) -> torch.Tensor:
    """All masters, or one of the state's tensors, without padding: a copy."""
    return torch.cat(
        [(part.master if key is None else part.tensors[key]).reshape(-1) for part in parts_in_order(shard, bucket)]
    ).clone()


def step(shard: Shard, bucket: Bucket, memory: WholeMemory, number: int) -> None:
    shard.drop_gradient()
    shard.add_gradient(arrived(values_of(bucket, number)))
    options = StepOptions([dict(OPTIONS)])
    for tile in shard.tiles(step=True):
        tile.inner.step(options, lambda _: True)
        memory.write_own(tile.begin, tile.master)
    options.keep()


def put(shard: Shard, bucket: Bucket, masters: torch.Tensor, state: dict[str, torch.Tensor], *, steps: int) -> None:
    """Sets masters and state of all parameters."""
    at = 0
    for parameter in bucket.parameters:
        made = []
        for part in shard.state_parts(parameter):
            count = part.stop - part.start
            part.master.copy_(masters[at : at + count])
            tensors = {}
            for key, values in state.items():
                tensors[key] = shard.empty_state(count, torch.float32)
                tensors[key].copy_(values[at : at + count])
            made.append(StatePart(part.start, part.stop, part.master, tensors, {"step": torch.tensor(float(steps))}))
            at += count
        shard.set_state(parameter, made, [dict(OPTIONS)])
