from __future__ import annotations

from typing import Any

import pytest

import shardkeep as sk
from tests.distributed.grid import stages
from tests.distributed.launcher import RankPools
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

SAVED = {"stages/whole": (1, "whole"), "stages/four": (4, "stages"), "stages/two": (2, "stages")}
CALLS = {name: len(name) for name in ("embed", "middle", "head")}


@pytest.fixture(scope="module")
def saved(pools: RankPools) -> RankPools:
    for run, (world, layout) in SAVED.items():
        pools.of(world).run(stages.save, run=run, layout=layout)
    return pools


def check(ranks: list[dict[str, Any]], layout: str) -> None:
    world = len(ranks)
    for rank, found in enumerate(ranks):
        names, stage = stages.layers_of(rank, world, layout)
        assert found["problems"] == {}
        assert {name.split(".")[0] for name in found["names"]} == set(names) - {"head"}
        assert found["rates"]
        assert found["calls"] == {name: calls for name, calls in CALLS.items() if name in names}
        assert found["schedules"] == {f"schedule{n}": 40 + n for n in ((0, 1) if stage is None else (stage,))}
        assert found["seen"] == 12
        assert all("random generators" in reason for reason in found["reasons"]), found["reasons"]


@pytest.mark.parametrize("run", SAVED)
@pytest.mark.parametrize(
    ("world", "layout"), [(1, "whole"), (2, "stages"), (2, "whole"), (4, "stages"), (4, "swapped")]
)
def test_E31_stages_and_whole_models_load_one_another_on_any_number_of_ranks(
    saved: RankPools, run: str, world: int, layout: str
) -> None:
    ranks = saved.of(world).run(stages.load, run=run, layout=layout)

    check(ranks, layout)
    if SAVED[run] == (world, layout):
        assert {found["verdict"] for found in ranks} == {"exact"}


def test_buffers_of_a_stage_return_per_rank_or_from_its_first_replica(saved: RankPools) -> None:
    means = [found["means"] for found in saved.of(4).run(stages.load, run="stages/four", layout="stages")]
    assert means == [{"norm0": 0.0}, {"norm0": 1.0}, {"norm1": 0.0}, {"norm1": 1.0}]

    (whole,) = saved.of(1).run(stages.load, run="stages/four", layout="whole")
    assert whole["means"] == {"norm0": 0.0, "norm1": 0.0}


def test_a_layer_that_no_rank_has_any_more_is_unexpected_on_each(saved: RankPools) -> None:
    for world in (2, 4):
        said = saved.of(world).run(stages.load_without_a_layer, run="stages/four")
        assert len(said) == world
        for unexpected in said:
            assert {name.split(".")[0] for name in unexpected} == {"model", "optimizer"}
            assert all("norm1" in name for name in unexpected)


def test_a_rank_that_lacks_names_keeps_no_other_waiting(saved: RankPools) -> None:
    said = saved.of(4).run(stages.load_one_rank_with_more, run="stages/four", timeout_seconds=60)
    assert said == ["model.extra.bias,model.extra.weight", "resumed", "resumed", "resumed"]


def test_only_what_differs_by_stage_is_read_from_more_than_one_manifest(
    saved: RankPools, shared_service: ServiceProcess
) -> None:
    with sk.connect(shared_service.url, shared_service.token) as client:
        report = client.run("stages/four").latest().info.report  # type: ignore[union-attr]  # it was saved

    assert report is not None
    assert set(report.values_of_some_ranks.values()) == {0, 2}
    assert all(path.startswith(("model.", "optimizer.", "schedule", "@")) for path in report.values_of_some_ranks)
    assert not any(path.startswith("optimizer") for path in report.per_rank_values)
