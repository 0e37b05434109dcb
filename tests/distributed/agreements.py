"""What ranks do in test_agreement.py."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.agreement import Agreement, Wish
from shardkeep.pytorch.process_groups import join_ranks, leave_ranks
from tests.waiting import wait_until


def wish_on_one_rank(rank: int, world_size: int) -> list[int]:
    ranks = join_ranks()
    agreement = Agreement(ranks.group)
    wishes = [Wish.NOTHING, Wish.SAVE if rank == 1 else Wish.NOTHING, Wish.SAVE_AND_STOP if rank == 0 else Wish.SAVE]
    agreed = [int(agreement.exchange(wish)) for wish in wishes]
    agreed.append(int(agreement.finish(10)))
    leave_ranks(ranks)
    return agreed


def fulfil_what_was_handed_in(rank: int, world_size: int) -> list[int]:
    """Rank 1 wishes at each boundary; all begin a save after the first, and after the fourth, where rank 1 stops."""
    ranks = join_ranks()
    agreement = Agreement(ranks.group)
    agreement.fulfil()
    agreed = []
    for boundary in range(1, 6):
        wish = Wish.SAVE_AND_STOP if boundary == 4 else Wish.SAVE
        agreed.append(int(agreement.exchange(wish if rank == 1 else Wish.NOTHING)))
        if boundary in (1, 4):
            agreement.fulfil()
    agreement.finish(10)
    leave_ranks(ranks)
    return agreed


def do_not_wait_for_a_slow_rank(rank: int, world_size: int, *, passed: Path) -> int:
    """Rank 1 reaches the second boundary only once rank 0 has passed it."""
    ranks = join_ranks()
    agreement = Agreement(ranks.group)
    agreement.exchange(Wish.NOTHING)
    dist.barrier(ranks.group)
    if rank == 1:
        wait_until(passed.exists, seconds=30)
    agreement.exchange(Wish.SAVE)
    if rank == 0:
        passed.touch()
    return int(agreement.finish(30))


def lose_a_rank(rank: int, world_size: int) -> str:
    ranks = join_ranks()
    agreement = Agreement(ranks.group)
    agreement.exchange(Wish.NOTHING)
    if rank == 1:
        agreement.finish(10)
        leave_ranks(ranks)
        return "left"
    try:
        agreement.exchange(Wish.SAVE)
        agreement.exchange(Wish.NOTHING)
    except ConfigurationError as error:
        return str(error)
    return "nothing happened"


def share_a_launch_id(rank: int, world_size: int) -> tuple[str, str, int, int]:
    first, second = join_ranks(), join_ranks()
    return first.launch_id, second.launch_id, first.rank, first.world_size


def contradict_the_group(rank: int, world_size: int) -> str:
    try:
        join_ranks(rank=rank, world_size=world_size + 1, launch_id="0" * 32)
    except ConfigurationError as error:
        return str(error)
    return "accepted"
