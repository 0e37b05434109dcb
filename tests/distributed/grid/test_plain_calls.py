"""What the checkpointer saves of sharded optimizers, plain calls read, and the other way round: one set of names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

import shardkeep as sk
from shardkeep.store.connect import Client
from tests.distributed.grid import jobs
from tests.distributed.grid.contents import difference
from tests.distributed.grid.models import MOMENTS, Model, expected, moment_dtypes
from tests.distributed.launcher import RankPools
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

Tensors = dict[tuple[str, ...], torch.Tensor]
"""By the parts of their names."""


@pytest.fixture(scope="module")
def client(shared_service: ServiceProcess) -> Iterator[Client]:
    with sk.connect(shared_service.url, shared_service.token) as connected:
        yield connected


def weights() -> Tensors:
    named = Model().named_parameters()
    return {("model", *name.split(".")): expected("model", name, "", one) for name, one in named}


def optimizer_state() -> Tensors:
    """Both moments of each parameter, and its step, which has no dimension."""
    found: Tensors = {}
    moments = {slot: dict(Model(moment_dtypes(slot)).named_parameters()) for slot in MOMENTS}
    for name, _ in Model().named_parameters():
        place = ("optimizer", "state", "model", *name.split("."))
        found[(*place, "step")] = torch.tensor(float(len(name)))
        found |= {(*place, slot): expected("model", name, slot, moments[slot][name]) for slot in MOMENTS}
    return found


def nested(leaves: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for (*above, last), value in leaves.items():
        at = tree
        for part in above:
            at = at.setdefault(part, {})
        at[last] = value
    return tree


def wrong(found: Tensors, wanted: Tensors) -> dict[Sequence[str], str]:
    return {name: text for name in wanted if (text := difference(found[name], wanted[name]))}


@pytest.fixture(scope="module", params=[2, 3])
def world(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def kept(pools: RankPools, client: Client, world: int) -> sk.Checkpoint:
    """Saved by the checkpointers of so many ranks."""
    pools.of(world).run(jobs.save_model, run=f"plain/kept-{world}", layout="fsdp")
    checkpoint = client.run(f"plain/kept-{world}").latest()
    assert checkpoint is not None
    return checkpoint


def test_E26_what_the_checkpointer_saved_of_fsdp2_is_loaded_by_a_plain_call(kept: sk.Checkpoint) -> None:
    wanted = {**weights(), **optimizer_state()}
    found = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}

    kept.load_into(nested(found), allow_unexpected=["optimizer.param_groups"])

    assert wrong(found, wanted) == {}


def test_E26_what_a_plain_call_saved_is_resumed_by_the_checkpointer_on_fsdp2(
    pools: RankPools, client: Client, world: int, kept: sk.Checkpoint
) -> None:
    groups = {path: value for path, value in kept.values().items() if path[:2] == ("optimizer", "param_groups")}
    state = nested({**weights(), **optimizer_state(), **groups})
    client.run(f"plain/by-hand-{world}").save(7, state).wait(60)

    for problems in pools.of(world).run(jobs.load_model, run=f"plain/by-hand-{world}", layout="fsdp"):
        assert {name: text for name, text in problems.items() if text} == {}
