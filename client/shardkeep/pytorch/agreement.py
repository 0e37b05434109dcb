"""Agreement between ranks on what only one of them can know: a clock, a signal, a request to save now.

One asynchronous one-integer MAX all-reduce per boundary on the keeper's own group: issued at a boundary, read at the
next, so that nobody waits for a slower rank. All ranks must pass the same boundaries in the same order.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from enum import IntEnum
from typing import Final

import torch
import torch.distributed as dist

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.process_groups import Ranks

_LOGGER: Final = logging.getLogger("shardkeep")


class Wish(IntEnum):
    """What a rank asks for at a boundary; of several, the highest wins."""

    NOTHING = 0
    SAVE = 1
    SAVE_AND_STOP = 2


class Agreement:
    """The highest wish of all ranks, one boundary late; at once where there is only one rank."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._pending: tuple[dist.Work, torch.Tensor] | None = None
        self._is_fulfilled = False

    def exchange(self, wish: Wish) -> Wish:
        """Hand in this rank's wish and learn what was wished at the boundary before.

        Errors: ConfigurationError when another rank left or passes other boundaries (after the group's timeout).
        """
        if self._group is None:
            return wish
        agreed = self._read()
        offered = torch.tensor([int(wish)], dtype=torch.int32, device="cpu")
        work = dist.all_reduce(offered, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        assert work is not None
        self._pending = (work, offered)
        return agreed

    def fulfil(self) -> None:
        """All ranks begin a save now: a wish to save that was handed in before is not to be acted on once more."""
        self._is_fulfilled = self._pending is not None

    def finish(self, timeout_seconds: float) -> Wish:
        """Wait for the last exchange, whose result nobody read yet; NOTHING if the other ranks do not answer."""
        pending, self._pending = self._pending, None
        if pending is None or not dist.is_initialized():
            return Wish.NOTHING
        work, offered = pending
        try:
            work.wait(timedelta(seconds=timeout_seconds))
        except RuntimeError as error:
            _LOGGER.info("the last agreement was not completed, another rank has left: %s", error)
            return Wish.NOTHING
        return Wish(int(offered.item()))

    def _read(self) -> Wish:
        if self._pending is None:
            return Wish.NOTHING
        work, offered = self._pending
        is_fulfilled, self._is_fulfilled = self._is_fulfilled, False
        self._pending = None
        try:
            work.wait()
        except RuntimeError as error:
            raise ConfigurationError(
                "the ranks could not agree: another rank has left, or does not call step() and poll() as often as this "
                f"one ({error})"
            ) from error
        wish = Wish(int(offered.item()))
        return Wish.NOTHING if wish is Wish.SAVE and is_fulfilled else wish


def plan_agreement(
    ranks: Ranks, *, signals: bool, every_minutes: float | None, remote_saves: bool = False
) -> Agreement | None:
    """How ranks agree on what only one of them knows; None where they need not or cannot."""
    if not signals and every_minutes is None and not remote_saves:
        return None
    if ranks.group is not None or ranks.alone:
        return Agreement(ranks.group)
    if every_minutes is not None:
        raise ConfigurationError("every_minutes needs a process group, so that ranks agree when; use every_steps")
    _LOGGER.log(
        logging.WARNING if signals else logging.INFO,
        "%s: without a process group, rank %d of %d cannot agree with the others on a save",
        "signals are not handled" if signals else "saves cannot be asked for from outside",
        ranks.rank,
        ranks.world_size,
    )
    return None
