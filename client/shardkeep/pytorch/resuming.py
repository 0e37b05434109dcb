"""Putting a checkpoint back: what would differ is known before anything is changed; random generators come last."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shardkeep.errors import ConfigurationError, InexactResume, NoUsableCheckpoint
from shardkeep.protocol.messages import PassedOver, ResumeDecision
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.data import Items
from shardkeep.pytorch.process_groups import Ranks
from shardkeep.pytorch.rng import RNG_PATH, RandomStates
from shardkeep.pytorch.unused_names import AskedRanks
from shardkeep.pytorch.verdict import Resumed, environment, environment_differences
from shardkeep.store.attempt import Attempt
from shardkeep.store.checkpoint import Checkpoint

_LOGGER: Final = logging.getLogger("shardkeep")
_REASONS_SHOWN: Final = 16
"""Reasons in a message; the error's attribute has all."""
_Values = Mapping[tuple[str, ...], Any]


@dataclass(frozen=True, slots=True)
class Leniency:
    """What a resume may let pass. `strict` lets nothing pass."""

    strict: bool = False
    cast: bool = False
    allow_missing: Sequence[str] = ()
    allow_unexpected: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.strict and (self.cast or self.allow_missing or self.allow_unexpected):
            raise ConfigurationError("strict=True allows no cast, allow_missing or allow_unexpected; leave one out")


class Restorer:
    """Puts checkpoints back into one rank's training state."""

    def __init__(
        self,
        *,
        ranks: Ranks,
        items: Items,
        training: TrainingState,
        random_states: RandomStates | None,
        seed: int,
    ) -> None:
        self._ranks = ranks
        self._items = items
        self._training = training
        self._random_states = random_states
        self._seed = seed
        self._random_saved: dict[str, Any] = {}

    def restore(self, checkpoint: Checkpoint, leniency: Leniency, others: AskedRanks) -> Resumed:
        """Restore everything and say how exact that is; `others` are the ranks that do the same.

        InexactResume, with `strict`, or LoadError before anything is changed.
        """
        try:
            return self._restore(checkpoint, leniency, others)
        except Exception:
            others.keep_nobody_waiting()
            raise

    def _restore(self, checkpoint: Checkpoint, leniency: Leniency, others: AskedRanks) -> Resumed:
        values = checkpoint.readable_values(self._ranks.rank if self._same_world(checkpoint) else None)
        self._random_saved = _values_below(values, RNG_PATH)
        reasons = self._differences(checkpoint)
        if leniency.strict and reasons:
            more = f"; and {len(reasons) - _REASONS_SHOWN} more" if len(reasons) > _REASONS_SHOWN else ""
            raise InexactResume(
                f"resuming {checkpoint.id} of step {checkpoint.step} would not be exact: "
                f"{'; '.join(reasons[:_REASONS_SHOWN])}{more}. Nothing was changed",
                reasons=reasons,
            )
        self._check_positions(values)
        reasons += self._restore_state(checkpoint, leniency, others)
        self.restore_random(checkpoint)
        return Resumed.from_checkpoint(checkpoint, reasons)

    def restore_random(self, checkpoint: Checkpoint) -> None:
        """Put back the generators of this rank, or start its own stream where the world size is another one.

        `checkpoint` is the one restored last.
        """
        if self._random_states is None:
            return
        if self._same_world(checkpoint):
            self._random_states.restore(self._random_saved)
            return
        self._random_states.reseed(seed=self._seed, step=checkpoint.step, rank=self._ranks.rank)
        _LOGGER.warning(
            "rank %d of %d: random generators start a stream of their own from (seed %d, step %d, rank %d), because "
            "%d ranks saved the checkpoint",
            self._ranks.rank,
            self._ranks.world_size,
            self._seed,
            checkpoint.step,
            self._ranks.rank,
            checkpoint.info.world_size,
        )

    def _differences(self, checkpoint: Checkpoint) -> list[str]:
        saved = checkpoint.manifest(self._source_rank(checkpoint)).environment
        recorded = {**saved, "world_size": checkpoint.info.world_size}
        reasons = environment_differences(recorded, environment(self._ranks.world_size))
        if self._random_states is None:
            return [*reasons, "random generators are not kept (rng=False)"]
        if not self._same_world(checkpoint):
            return [*reasons, "random generators start anew from (seed, step, rank) on another world size"]
        return reasons + self._random_states.differences(self._random_saved)

    def _check_positions(self, values: _Values) -> None:
        for name, sampler in self._items.samplers.items():
            state = _values_below(values, name)
            if state:
                sampler.check_state(state)

    def _restore_state(self, checkpoint: Checkpoint, leniency: Leniency, others: AskedRanks) -> list[str]:
        report = self._training.restore(
            checkpoint,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            allow_missing=leniency.allow_missing,
            allow_unexpected=leniency.allow_unexpected,
            cast=leniency.cast,
            unused=others,
        )
        told = " ".join(report.notes)
        reasons = report.notes + [f"{name} was not in the checkpoint" for name in report.kept_fresh if name not in told]
        return [*reasons, "cast=True was given, so that dtypes may differ"] if leniency.cast else reasons

    def _same_world(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.info.world_size == self._ranks.world_size

    def _source_rank(self, checkpoint: Checkpoint) -> int:
        return self._ranks.rank if self._same_world(checkpoint) else 0


def _values_below(values: _Values, name: str) -> dict[str, Any]:
    """The values at paths of two parts, `name` and the key."""
    return {path[1]: values[path] for path in values if path[0] == name and len(path) == 2}


def decide(attempt: Attempt, checkpoint_id: str | None, *, fresh: bool) -> ResumeDecision:
    """What all ranks resume from; each newer checkpoint that was not chosen is logged with its reason."""
    try:
        decision = attempt.decide_resume(checkpoint_id, fresh=fresh)
    except NoUsableCheckpoint as error:
        _report_passed_over(error.passed_over)
        raise
    _report_passed_over(decision.passed_over)
    return decision


def _report_passed_over(passed_over: Sequence[PassedOver]) -> None:
    for passed in passed_over:
        _LOGGER.warning("passed over checkpoint %s of step %d: %s", passed.checkpoint_id, passed.step, passed.reason)


def report_resumed(resumed: Resumed, *, run: str) -> None:
    """Log what training continues from and each reason why it is not exact."""
    if resumed.checkpoint is None:
        _LOGGER.info("%s starts fresh at step 0", run)
        return
    _LOGGER.info(
        "%s continues from checkpoint %s of step %d (%s)", run, resumed.checkpoint.id, resumed.step, resumed.verdict
    )
    for reason in resumed.reasons:
        _LOGGER.warning("the resume is not exact: %s", reason)
