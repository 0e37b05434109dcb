"""The ranks of one launch: who this one is, the launch id they share, and the keeper's own gloo group.

The launch id is 128 random bits drawn by rank 0 and handed to all by one broadcast. Scheduler ids are labels only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist

from shardkeep.errors import ConfigurationError
from shardkeep.protocol.identifiers import new_launch_id

_SCHEDULER_VARIABLES: Final = {
    "torchelastic.run_id": "TORCHELASTIC_RUN_ID",
    "torchelastic.restart": "TORCHELASTIC_RESTART_COUNT",
    "slurm.job_id": "SLURM_JOB_ID",
    "slurm.restart": "SLURM_RESTART_COUNT",
    "kubernetes.pod": "HOSTNAME",
}
_LABEL_CHARACTERS: Final = 1000
_LAUNCH_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Ranks:
    """One rank's place in its launch. `group` is None where there is no process group: then no rank can ask another."""

    rank: int
    world_size: int
    launch_id: str
    group: dist.ProcessGroup | None

    @property
    def alone(self) -> bool:
        """Whether there is nobody to agree with."""
        return self.world_size == 1


def join_ranks(*, rank: int | None = None, world_size: int | None = None, launch_id: str | None = None) -> Ranks:
    """The place of this process, the shared launch id and a gloo group of all ranks.

    Collective where torch.distributed is initialised: every rank calls it once, with the same launch_id or none.
    ConfigurationError when rank and world size are unknown, contradict the process group, or lack a launch_id.
    """
    if dist.is_available() and dist.is_initialized():
        return _join_process_group(rank=rank, world_size=world_size, launch_id=launch_id)
    if rank is None and world_size is None:
        return _place_in_environment(launch_id)
    if rank is None or world_size is None:
        raise ConfigurationError("give both rank and world_size, or neither")
    if not 0 <= rank < world_size:
        raise ConfigurationError(f"rank {rank} of {world_size} does not exist")
    if world_size > 1 and launch_id is None:
        raise ConfigurationError(
            f"rank {rank} of {world_size} without a process group needs a launch_id: 32 hexadecimal digits, drawn once "
            "per launch and given to every rank"
        )
    return Ranks(rank, world_size, launch_id or new_launch_id(), None)


def leave_ranks(ranks: Ranks) -> None:
    """Give up the keeper's own group. Does nothing when the user already destroyed all groups."""
    if ranks.group is not None and dist.is_initialized():
        dist.destroy_process_group(ranks.group)


def scheduler_labels() -> dict[str, str]:
    """What the scheduler calls this launch; for people to read, never to tell launches apart."""
    found = {name: os.environ.get(variable, "") for name, variable in _SCHEDULER_VARIABLES.items()}
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        found.pop("kubernetes.pod")
    return {name: value[:_LABEL_CHARACTERS] for name, value in found.items() if value}


def _join_process_group(*, rank: int | None, world_size: int | None, launch_id: str | None) -> Ranks:
    here, size = dist.get_rank(), dist.get_world_size()
    if rank not in (None, here) or world_size not in (None, size):
        raise ConfigurationError(
            f"rank={rank}, world_size={world_size} contradict the process group, where this is rank {here} of {size}; "
            "leave them out"
        )
    if size == 1:
        return Ranks(0, 1, launch_id or new_launch_id(), None)
    group = dist.new_group(backend="gloo", group_desc="shardkeep")
    return Ranks(here, size, launch_id or _shared_launch_id(group), group)


def _shared_launch_id(group: dist.ProcessGroup) -> str:
    drawn = torch.tensor(list(bytes.fromhex(new_launch_id())), dtype=torch.uint8, device="cpu")
    dist.broadcast(drawn, src=0, group=group)
    return bytes(drawn.tolist()).hex()


def _place_in_environment(launch_id: str | None) -> Ranks:
    world_size = max(int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    if world_size > 1:
        raise ConfigurationError(
            f"the environment says {world_size} ranks and there is no process group: call "
            "torch.distributed.init_process_group first, or give rank, world_size and launch_id"
        )
    return Ranks(0, 1, launch_id or new_launch_id(), None)
