"""The saves of one attempt on one rank: capture, agree on owners, stage, hand over. Failed ones count too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from shardkeep.errors import ShardkeepError
from shardkeep.format.names import join_name
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.captured import Capture, CapturedValue
from shardkeep.pytorch.data import Items, PositionWatch, items_of_every_rank
from shardkeep.pytorch.layouts import Layouts
from shardkeep.pytorch.rng import RNG_PATH, RandomStates
from shardkeep.pytorch.saving import (
    LOOP_PATH,
    items_of_values,
    plan_slices,
    stage_slices,
)
from shardkeep.pytorch.verdict import environment
from shardkeep.store.attempt import Attempt
from shardkeep.store.metrics import plain_metrics
from shardkeep.store.save_handle import SaveHandle

_LOGGER: Final = logging.getLogger("shardkeep")
_REASON_CHARACTERS: Final = 1500


class Saver:
    """Saves the training state into one attempt. One thread."""

    def __init__(
        self, attempt: Attempt, *, items: Items, training: TrainingState, random_states: RandomStates | None
    ) -> None:
        self.attempt = attempt
        self._items = items
        self._training = training
        self._random_states = random_states
        self._layouts = Layouts(attempt, world_size=attempt.world_size)
        self._watch = PositionWatch()

    def save(self, step: int, metrics: Mapping[str, Any] | None) -> SaveHandle:
        """Stage the state as it is now; training may go on when this returns.

        Waits for the save in flight first. When this rank cannot take part the checkpoint is aborted, so that no other
        rank waits for it, and the error is raised.
        """
        save = self.attempt.saves
        agreed = False
        try:
            capture, own = self._capture(step)
            values = items_of_values(capture, self._items.state)
            self._watch.check(step, values, self._items.positions)
            agreed = True
            self._layouts.agree(save, capture.tensors, items_of_every_rank(values, self._items))
            return self._write(step, save, capture, own, metrics)
        except BaseException as error:
            self._give_up(save, step, error, agreed=agreed)
            raise

    def _capture(self, step: int) -> tuple[Capture, list[CapturedValue]]:
        own = [CapturedValue(LOOP_PATH, {"step": step, "unit": "steps of the training loop"})]
        if self._random_states is not None:
            states = self._random_states.capture()
            own += [CapturedValue((RNG_PATH, kind), state, per_rank=True) for kind, state in states.items()]
        return self._training.capture(), own

    def _write(
        self, step: int, save: int, capture: Capture, own: list[CapturedValue], metrics: Mapping[str, Any] | None
    ) -> SaveHandle:
        numbers = plain_metrics(metrics)
        slices = plan_slices(capture.tensors, self._layouts, save)
        with self.attempt.start_save(step, expected_bytes=sum(item.stored_bytes for item in slices)) as writer:
            stage_slices(writer, slices)
            records = [
                writer.stage_value(join_name(value.path), value.value, per_rank=value.per_rank)
                for value in (*capture.values, *own)
            ]
            return writer.finish(records, numbers, environment(self.attempt.world_size))

    def _give_up(self, save: int, step: int, error: BaseException, *, agreed: bool) -> None:
        """Take part in this save as the rank that aborts it, where it has not begun yet."""
        if self.attempt.saves > save:
            return
        if not isinstance(error, Exception):
            self.attempt.skip_save()
            return
        try:
            if not agreed:
                self._layouts.take_part_without_state(save)
        except ShardkeepError as second:
            _LOGGER.warning("the other ranks may wait for this one's inventory: %s", second)
        writer = self.attempt.start_save(step, expected_bytes=0)
        writer.abort(f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS])
