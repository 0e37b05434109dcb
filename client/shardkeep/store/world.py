"""Which rank of how many this process is, and the launch it belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shardkeep.errors import ConfigurationError
from shardkeep.protocol.identifiers import RANK_LIMIT, new_launch_id
from shardkeep.store.extensions import loaded_extension

_RANK_VARIABLES: Final = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


@dataclass(frozen=True, slots=True)
class World:
    """One rank of a launch. `launch_id` is 32 hexadecimal digits, the same on all ranks and new at every launch."""

    rank: int
    world_size: int
    launch_id: str

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size <= RANK_LIMIT:
            raise ConfigurationError(f"rank {self.rank} of a world of {self.world_size} is impossible")
        if len(self.launch_id) != 32 or set(self.launch_id) - set("0123456789abcdef"):
            raise ConfigurationError(
                f"launch_id {self.launch_id!r} is not 32 hexadecimal digits; draw one with uuid.uuid4().hex on one "
                "rank and give it to all"
            )

    @classmethod
    def alone(cls) -> World:
        """A launch of one process."""
        return cls(0, 1, new_launch_id())

    @classmethod
    def from_environment(cls, *, launch_id: str | None = None, environment: Mapping[str, str] | None = None) -> World:
        """The world of torch.distributed when initialised, else of RANK/WORLD_SIZE or Slurm, else 0 of 1.

        More than one rank without a process group needs a `launch_id`; ConfigurationError otherwise.
        """
        extension = loaded_extension()
        world = extension.current_world() if extension is not None else None
        if world is not None:
            return world
        rank, world_size = _rank_and_size(os.environ if environment is None else environment)
        if world_size > 1 and launch_id is None:
            raise ConfigurationError(
                f"The environment says rank {rank} of {world_size}, and there is no process group over which the ranks "
                "could agree on a launch id. Initialise torch.distributed first, or give rank, world_size and launch_id"
            )
        return cls(rank, world_size, launch_id or new_launch_id())


def is_first_rank() -> bool:
    """Whether this process is rank 0 of its world, as far as it can be known; one that says nonsense is not."""
    extension = loaded_extension()
    rank = extension.current_rank() if extension is not None else None
    if rank is not None:
        return rank == 0
    try:
        return _rank_and_size(os.environ)[0] == 0
    except ConfigurationError:
        return False


def _rank_and_size(environment: Mapping[str, str]) -> tuple[int, int]:
    for rank_variable, size_variable in _RANK_VARIABLES:
        rank, size = environment.get(rank_variable), environment.get(size_variable)
        if rank is None or size is None:
            continue
        try:
            return int(rank), int(size)
        except ValueError as exc:
            raise ConfigurationError(
                f"{rank_variable}={rank!r} and {size_variable}={size!r} are not both numbers"
            ) from exc
    return 0, 1
