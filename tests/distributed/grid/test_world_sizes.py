"""The world-size grid: saved on 1, 2, 3 and 4 ranks in every layout, loaded on 1, 2, 3, 4 and 5, element by element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import shardkeep as sk
from shardkeep.store.connect import Client
from tests.distributed.grid import jobs
from tests.distributed.grid.models import MOMENTS, SHAPES, Feed, Model, Normed, shape_name
from tests.distributed.launcher import RankPools
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

PROJECT = "grid"
RUNS = {"plain-1": 1, "fsdp-2": 2, "fsdp-3": 3, "fsdp-4": 4, "hsdp-4": 4}
FEED_LAYOUTS = {1: ["plain"], 2: ["fsdp"], 3: ["1x3"], 4: ["4x1", "tp", "fsdp"], 5: ["fsdp"]}
LOADED_ON = (1, 2, 3, 4, 5)


@dataclass
class Grid:
    """The saves, made once; and what each world size loaded, looked at once."""

    pools: RankPools
    _loaded: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)

    def save(self) -> None:
        for world in (1, 2, 3, 4):
            self.pools.of(world).run(jobs.save_all, project=PROJECT)

    def loaded(self, run: str, world: int) -> list[dict[str, Any]]:
        if (run, world) not in self._loaded:
            layout = "plain" if world == 1 else "hsdp" if (run, world) == ("hsdp-4", 4) else "fsdp"
            self._loaded[run, world] = self.pools.of(world).run(
                jobs.load_run, run=f"{PROJECT}/{run}", saved_on=RUNS[run], layout=layout
            )
        return self._loaded[run, world]

    def everything(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for world in LOADED_ON:
            for run in RUNS:
                for rank, found in enumerate(self.loaded(run, world)):
                    yield f"{run} on rank {rank} of {world}", found


@pytest.fixture(scope="module")
def grid(pools: RankPools) -> Grid:
    made = Grid(pools)
    made.save()
    return made


@pytest.fixture(scope="module")
def client(shared_service: ServiceProcess) -> Iterator[Client]:
    with sk.connect(shared_service.url, shared_service.token) as connected:
        yield connected


def wrong(problems: dict[str, str], *, within: str = "") -> dict[str, str]:
    return {name: problem for name, problem in problems.items() if problem and within in name}


@pytest.mark.parametrize("world", LOADED_ON)
@pytest.mark.parametrize("run", RUNS)
def test_E31_E93_E97_E203_every_element_and_both_moments_are_loaded_by_name(grid: Grid, run: str, world: int) -> None:
    names = {name for name, _ in Model().named_parameters()}
    for found in grid.loaded(run, world):
        assert wrong(found["model"]) == {}
        assert {name for name in found["model"] if name in names} == names
        assert len(found["model"]) == 4 * len(names) + 1
        assert wrong(found["ddp"]) == {}
        assert (found["step"], found["lr"]) == (7, 0.125)


def test_an_evaluation_forward_before_save_and_before_load_leaves_nothing_stale(grid: Grid) -> None:
    for where, found in grid.everything():
        assert found["was_zero"], where
        assert found["model"]["forward"] == "", where


def test_E37_weight_and_moments_are_three_buffers_with_three_contents(grid: Grid) -> None:
    for where, found in grid.everything():
        assert found["shared_memory"] == [], where


def test_E92_E96_E100_shapes_that_leave_ranks_empty_come_back_whole(grid: Grid) -> None:
    for where, found in grid.everything():
        for shape in SHAPES:
            own = {name for name in found["model"] if shape_name(shape) in name.split(".")}
            assert len(own) == 16, (where, shape)
        assert wrong(found["table"]) == {}, where


def test_E99_scalars_of_every_kind_keep_their_shape(grid: Grid, client: Client) -> None:
    for where, found in grid.everything():
        assert wrong(found["model"], within="scalar") == {}, where
        assert {name: found["table"][name] for name in jobs.SCALARS} == dict.fromkeys(jobs.SCALARS, ""), where
    for run in RUNS:
        checkpoint = client.run(f"{PROJECT}/{run}").latest()
        assert checkpoint is not None
        shapes = {info.name: tuple(info.shape) for info in checkpoint.tensors()}
        assert shapes["model.scalar"] == shapes["table.bool"] == shapes["optimizer.state.model.own.step"] == ()


def test_E32_padding_of_a_flat_buffer_never_gets_into_real_elements_nor_back(grid: Grid) -> None:
    for where, found in grid.everything():
        assert wrong(found["flat"]) == {}, where


def test_batch_norm_buffers_return_per_rank_on_the_same_world_size_and_from_rank_0_on_another(grid: Grid) -> None:
    for where, found in grid.everything():
        assert found["buffers"] == tuple(found["expected_buffers"]), where


def test_E35_every_parameter_has_its_moments_and_element_counts_sum_to_the_model(grid: Grid, client: Client) -> None:
    parameters = {
        **{f"model.{name}": parameter.numel() for name, parameter in Model().named_parameters()},
        **{f"ddp.{name}": parameter.numel() for name, parameter in Normed().named_parameters()},
    }
    for run in RUNS:
        checkpoint = client.run(f"{PROJECT}/{run}").latest()
        assert checkpoint is not None
        counts = {}
        for info in checkpoint.tensors():
            counts[info.name] = 1
            for size in info.shape:
                counts[info.name] *= size
        assert {name: counts[name] for name in parameters} == parameters
        for slot in MOMENTS:
            optimizers = {"model": "optimizer", "ddp": "ddp_optimizer"}
            held = {n: counts[f"{optimizers[n.split('.')[0]]}.state.{n}.{slot}"] for n in parameters}
            assert sum(held.values()) == sum(parameters.values())


@pytest.mark.parametrize(("world", "layout"), [(world, each) for world, all_ in FEED_LAYOUTS.items() for each in all_])
def test_E203_weights_and_moments_of_a_two_dimensional_mesh_load_on_others(grid: Grid, world: int, layout: str) -> None:
    for found in grid.pools.of(world).run(jobs.load_feed, run=f"{PROJECT}/tp-4", layout=layout):
        assert wrong(found["feed"]) == {}
        assert len(found["feed"]) == 4 * len(list(Feed().parameters()))
        assert found["forward"]


def test_E41_E42_ranks_with_other_numbers_of_entries_load_on_any_number(grid: Grid) -> None:
    counts = grid.pools.of(4).run(jobs.save_uneven_entries, run=f"{PROJECT}/uneven")
    assert counts == [1, 1, 1, 1 + jobs.NORMS]

    for world in (4, 3, 1):
        ranks = grid.pools.of(world).run(jobs.load_uneven_entries, run=f"{PROJECT}/uneven")
        assert [wrong(found) for found in ranks] == [{}] * world
        assert len(ranks[-1]) == 1 + jobs.NORMS


def test_E34_losses_of_the_same_global_batches_go_on_as_uninterrupted(grid: Grid) -> None:
    uninterrupted = grid.pools.of(4).run(jobs.train, run=f"{PROJECT}/train", layout="fsdp", resume=False)[0]
    for world, layout in ((1, "plain"), (2, "fsdp"), (3, "fsdp"), (4, "hsdp")):
        for losses in grid.pools.of(world).run(jobs.train, run=f"{PROJECT}/train", layout=layout, resume=True):
            assert losses == pytest.approx(uninterrupted[3:], rel=1e-4)
