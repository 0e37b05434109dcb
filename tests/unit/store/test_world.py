"""Rank and world from the environment."""

from __future__ import annotations

import pytest

from shardkeep.errors import ConfigurationError
from shardkeep.store.world import World

LAUNCH = "0123456789abcdef" * 2


def test_alone_without_any_variable() -> None:
    first, second = World.from_environment(environment={}), World.from_environment(environment={})
    assert (first.rank, first.world_size) == (0, 1)
    assert first.launch_id != second.launch_id


@pytest.mark.parametrize("names", [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")])
def test_a_world_of_several_needs_a_launch_id(names: tuple[str, str]) -> None:
    environment = dict(zip(names, ("2", "4"), strict=True))
    with pytest.raises(ConfigurationError, match="rank 2 of 4"):
        World.from_environment(environment=environment)
    assert World.from_environment(environment=environment, launch_id=LAUNCH) == World(2, 4, LAUNCH)


def test_impossible_worlds_are_refused() -> None:
    for rank, size in ((1, 1), (-1, 2), (0, 0)):
        with pytest.raises(ConfigurationError):
            World(rank, size, LAUNCH)
    with pytest.raises(ConfigurationError, match="launch_id"):
        World(0, 1, "slurm-12345")
    with pytest.raises(ConfigurationError, match="not both numbers"):
        World.from_environment(environment={"RANK": "zero", "WORLD_SIZE": "1"})
