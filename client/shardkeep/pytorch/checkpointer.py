"""The Checkpointer: when training state is saved, what becomes of failures, and resuming.

How a save is made is in `saver` and `saving`, how a checkpoint is put back in `resuming`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self

from shardkeep.errors import AttemptFenced, ConfigurationError, ShardkeepError, StateError
from shardkeep.pytorch.agreement import Wish, plan_agreement
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.data import sort_items
from shardkeep.pytorch.opening import check_options, has_checkpoints, merge_items, open_run
from shardkeep.pytorch.outcomes import FailedSave, SaveOutcomes
from shardkeep.pytorch.process_groups import join_ranks, leave_ranks, scheduler_labels
from shardkeep.pytorch.resuming import Leniency, Restorer, decide, report_resumed
from shardkeep.pytorch.rng import RandomStates
from shardkeep.pytorch.saver import Saver
from shardkeep.pytorch.signals import SignalHandlers, Wishes
from shardkeep.pytorch.unused_names import AskedRanks
from shardkeep.pytorch.verdict import Resumed
from shardkeep.store.attempt import Attempt
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.connect import CodecName
from shardkeep.store.request_watch import RequestWatch
from shardkeep.store.run import Run
from shardkeep.store.world import World

_LOGGER: Final = logging.getLogger("shardkeep")
_FINISH_SECONDS: Final = 10.0


class Checkpointer:
    """Saves and resumes the training state of one rank; every rank of a launch makes one and uses it alike.

    `run` is a Run or "project/run" (then a client is made from the environment). Every other keyword, and every entry
    of `state`, is a state item: a module, an optimizer, anything with `state_dict` and `load_state_dict`, a tensor, a
    generator (random.Random, numpy, torch), or a dict or list updated in place.

    `every_steps` saves whenever a multiple of it is passed, `every_minutes` when that long since the last save.
    `signals`: SIGUSR1 saves; SIGTERM saves, waits for the commit and lets `step` return True. `remote_saves`: so does
    whoever asks the service (`shardkeep save-now`, the dashboard): rank 0 waits for that in a thread, and the next
    `step` saves once however many asked. `on_error`: what `step` does about a failed save. `rng`: whether global random
    generators are kept; `seed` is the base of the streams given out where a resume cannot put them back.
    `staging_bytes` and `codec` as for `shardkeep.connect`.

    All ranks must call `step`, `poll`, `save` and `resume` alike: the same calls with the same steps in the same order.
    They are matched by counting; nothing else is exchanged, but one integer a `step` or `poll` where `signals`,
    `every_minutes` or `remote_saves` need it, which nobody waits for.
    """

    def __init__(
        self,
        run: Run | str,
        *,
        state: Mapping[str, object] | None = None,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        staging_bytes: int | None = None,
        codec: CodecName | None = None,
        on_error: Literal["log", "raise"] = "log",
        labels: Mapping[str, str] | None = None,
        launch_id: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        rng: bool = True,
        seed: int = 0,
        signals: bool = True,
        remote_saves: bool = True,
        **items: object,
    ) -> None:
        check_options(every_steps=every_steps, every_minutes=every_minutes, on_error=on_error)
        self._client, self._run = open_run(run, staging_bytes=staging_bytes, codec=codec)
        self._items = sort_items(merge_items(items, state or {}))
        self._training = TrainingState(self._items.state)
        self._random_states = (
            RandomStates(self._items.generators, include_global=rng) if rng or self._items.generators else None
        )
        self._every_steps = every_steps
        self._every_seconds = None if every_minutes is None else every_minutes * 60
        self._on_error = on_error
        self._labels = {**scheduler_labels(), **(labels or {})}
        # Before the group is joined, which no rank leaves before all have come: so no rank can have saved yet.
        self._run_has_checkpoints = has_checkpoints(self._run)
        self._ranks = join_ranks(rank=rank, world_size=world_size, launch_id=launch_id)
        self._restorer = Restorer(
            ranks=self._ranks,
            items=self._items,
            training=self._training,
            random_states=self._random_states,
            seed=seed,
        )
        self._wishes = Wishes()
        self._handlers = SignalHandlers(self._wishes)
        self._agreement = plan_agreement(
            self._ranks, signals=signals, every_minutes=every_minutes, remote_saves=remote_saves
        )
        self._hears_requests = remote_saves and self._agreement is not None and self._ranks.rank == 0
        self._watch: RequestWatch | None = None
        self._ends_watch: weakref.finalize[[], Checkpointer] | None = None
        if signals and self._agreement is not None:
            self._handlers.install()
        self._ordinal = 0
        self._saver: Saver | None = None
        self._outcomes = SaveOutcomes()
        self._last_step = 0
        self._saved_at = time.monotonic()
        self._agreed = Wish.NOTHING
        self._stopped = False
        self._window_open = False
        self._closed = False
        self.resumed: Resumed | None = None
        self._at_exit = partial(_close_at_exit, weakref.ref(self))
        atexit.register(self._at_exit)

    # --- resuming ----------------------------------------------------------------------------------------------------

    def resume(
        self,
        checkpoint: str | Checkpoint | None = None,
        *,
        fresh: bool = False,
        strict: bool = False,
        cast: bool = False,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
    ) -> int:
        """Continue from the last consistent checkpoint (or the given one) and return its step; 0 only when fresh.

        `fresh=True` starts over beside the checkpoints there are. Calling it again rolls back. Random generators are
        restored last; what draws from them afterwards (a plain DataLoader's iterator does) shifts them, see
        `restore_random`. Errors: NoUsableCheckpoint; InexactResume with `strict`; LoadError when the checkpoint does
        not fit. After these nothing was changed.
        """
        leniency = Leniency(strict, cast, allow_missing, allow_unexpected)
        attempt = self._begin_attempt()
        wanted = checkpoint.id if isinstance(checkpoint, Checkpoint) else checkpoint
        decision = decide(attempt, wanted, fresh=fresh)
        self._ordinal += 1
        if decision.checkpoint is None:
            resumed = Resumed(0, None, "fresh")
        else:
            found = attempt.checkpoint(decision.checkpoint)
            others = AskedRanks(attempt, world_size=attempt.world_size)
            resumed = self._restorer.restore(found, leniency, others)
            attempt.set_history(found.id, found.slices_of(attempt.rank, attempt.world_size))
        report_resumed(resumed, run=f"{self._run.project}/{self._run.name}")
        self._start_saving(attempt, resumed)
        return resumed.step

    @property
    def failures(self) -> list[FailedSave]:
        """Every save that did not commit, in order."""
        return self._outcomes.failures

    def restore_random(self) -> None:
        """Put the random generators back once more, after iterators were made that drew from them."""
        if self.resumed is not None and self.resumed.checkpoint is not None:
            self._restorer.restore_random(self.resumed.checkpoint)

    # --- saving ------------------------------------------------------------------------------------------------------

    def step(self, n: int, metrics: Mapping[str, Any] | None = None) -> bool:
        """The edge of step `n`: save if due; True once training should stop (the save is then committed or reported).

        A stop or save asked for by signal, clock or `request_save` is acted on one call later, on all ranks alike.
        """
        self._check_usable()
        self._outcomes.notice(raise_failures=self._on_error == "raise")
        if self._window_open or self._stopped:
            return self._stopped
        wish = max(self._agreed, self._exchange())
        self._agreed = Wish.NOTHING
        if wish is not Wish.NOTHING or self._passes_multiple(n):
            begun = self._save_at_edge(n, metrics, retry=wish is Wish.SAVE_AND_STOP)
            if not begun and wish is Wish.SAVE:
                self._agreed = wish  # it is younger than the save of this step, which began before anybody asked
        self._last_step = n
        if wish is Wish.SAVE_AND_STOP:
            self._stop(n)
        return self._stopped

    def save(self, n: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Save step `n` now; returns once the state is staged. Raises what keeps this rank from taking part.

        A step that is already saved is not saved again; one whose save failed is.
        """
        self._check_usable()
        if self._window_open:
            raise StateError(
                "a gradient accumulation window is open: gradients are not part of a checkpoint, so save after the "
                "optimizer's step"
            )
        self._outcomes.notice(raise_failures=False)
        self._save(n, metrics, retry=True)
        self._last_step = n

    @contextlib.contextmanager
    def accumulating(self) -> Iterator[None]:
        """Declare a gradient accumulation window: inside it `step` puts saves off to its end and `save` is an error."""
        self._window_open = True
        try:
            yield
        finally:
            self._window_open = False

    def request_save(self, *, stop: bool = False) -> None:
        """Ask for a save (and a stop) from anywhere: any thread, any one rank. `step` acts on it."""
        if self._agreement is None:
            raise ConfigurationError(
                "the ranks cannot agree on a request: there is no process group, or signals=False and "
                "remote_saves=False were given"
            )
        self._wishes.ask(stop=stop)

    def poll(self) -> bool:
        """Whether a stop is agreed on; for long loops that do not call `step`, such as evaluation.

        Equal on all ranks, which must call it alike; it lags one call. When True, leave the loop and call `step`.
        """
        self._check_usable()
        if not self._stopped:
            self._agreed = max(self._agreed, self._exchange())
        return self._stopped or self._agreed is Wish.SAVE_AND_STOP

    @property
    def stop_requested(self) -> bool:
        """Whether this rank knows of a request to stop. Costs nothing; other ranks may learn of it later."""
        return self._stopped or self._wishes.stop_asked or self._agreed is Wish.SAVE_AND_STOP

    # --- waiting and closing -----------------------------------------------------------------------------------------

    def wait(self) -> Checkpoint | None:
        """Wait for the last save and return its checkpoint (None without a save); raises what it failed with."""
        return self._outcomes.wait()

    def close(self) -> None:
        """Wait for the last save, give signals and group back; raises what the last save failed with. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._stop_watching()
        atexit.unregister(self._at_exit)
        try:
            self._outcomes.wait()
        finally:
            if self._wishes.stop_asked and not self._stopped:
                _LOGGER.warning("a stop was requested and step() did not act on it: %s", self._outcomes.describe_last())
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ShardkeepError:
            if error is None:
                raise

    # --- how ---------------------------------------------------------------------------------------------------------

    def _begin_attempt(self) -> Attempt:
        """A new attempt, after the save in flight of the present one has ended.

        Its ordinal counts decisions, so that a rank that failed before one joins the attempt of the others again.
        """
        if self._closed:
            raise ConfigurationError("this Checkpointer is closed; make a new one")
        self._stop_watching()
        if self._saver is not None:
            self._outcomes.wait_quietly()
            self._saver.attempt.close()
            self._saver = None
        world = World(self._ranks.rank, self._ranks.world_size, self._ranks.launch_id)
        return self._run.begin_attempt(world, self._ordinal, self._labels)

    def _start_saving(self, attempt: Attempt, resumed: Resumed) -> Saver:
        self.resumed = resumed
        saver = self._saver = Saver(
            attempt, items=self._items, training=self._training, random_states=self._random_states
        )
        self._outcomes.forget_last()
        self._last_step = resumed.step
        self._saved_at = time.monotonic()
        if self._hears_requests:
            self._watch = attempt.watch_requests(partial(self._wishes.ask, stop=False))
            self._ends_watch = weakref.finalize(self, self._watch.end)
        return saver

    def _stop_watching(self) -> None:
        if self._ends_watch is not None:
            self._ends_watch.detach()  # or it keeps the watch and its connections for as long as this lives
            self._ends_watch = None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()

    def _present_saver(self) -> Saver:
        """The saver of the present attempt; without `resume()`, that of a fresh one in a run nobody has saved to."""
        if self._saver is not None:
            return self._saver
        name = f"{self._run.project}/{self._run.name}"
        hint = "call resume() first to continue them, or resume(fresh=True) to start over beside them"
        if self._run_has_checkpoints:
            raise ConfigurationError(f"{name} has checkpoints: {hint}")
        attempt = self._begin_attempt()
        decision = attempt.decide_resume()
        self._ordinal += 1
        if decision.checkpoint is not None:
            raise ConfigurationError(f"{name} has got checkpoints from elsewhere meanwhile: {hint}")
        return self._start_saving(attempt, Resumed(0, None, "fresh"))

    def _save(self, n: int, metrics: Mapping[str, Any] | None, *, retry: bool) -> bool:
        """Whether a save was begun: what was asked for before is fulfilled by it."""
        saver = self._present_saver()
        if self._outcomes.last_step == n and (not retry or self._outcomes.wait_quietly()):
            _LOGGER.info("step %d is already saved, so it is not saved again", n)
            return False
        self._outcomes.notice(raise_failures=self._on_error == "raise", wait=True)
        self._saved_at = time.monotonic()
        self._fulfil_wishes()
        with self._outcomes.beginning(n) as begun:
            begun(saver.save(n, metrics))
        return True

    def _fulfil_wishes(self) -> None:
        """All ranks begin a save, so that none of them acts once more on what was asked for before it."""
        self._wishes.fulfil()
        if self._agreement is not None:
            self._agreement.fulfil()
        if self._agreed is Wish.SAVE:
            self._agreed = Wish.NOTHING

    def _save_at_edge(self, n: int, metrics: Mapping[str, Any] | None, *, retry: bool) -> bool:
        self._present_saver()
        try:
            return self._save(n, metrics, retry=retry)
        except AttemptFenced:
            raise
        except Exception:  # the edge of training: a failed save, kept in failures, must not end it
            if self._on_error == "raise":
                raise
            return True

    def _stop(self, n: int) -> None:
        """The end of training that all ranks agreed on: wait for the commit and say whether there is one."""
        self._stopped = True
        committed = self._outcomes.wait_quietly()
        self._outcomes.raise_if_fenced()
        level = logging.WARNING if committed else logging.ERROR
        _LOGGER.log(level, "stopping at step %d as requested: %s", n, self._outcomes.describe_last())

    def _exchange(self) -> Wish:
        if self._agreement is None:
            return Wish.NOTHING
        own = self._wishes.take()
        if self._every_seconds is not None and time.monotonic() - self._saved_at >= self._every_seconds:
            own = max(own, Wish.SAVE)
        return self._agreement.exchange(own)

    def _passes_multiple(self, n: int) -> bool:
        return self._every_steps is not None and n // self._every_steps > self._last_step // self._every_steps

    def _check_usable(self) -> None:
        if self._closed:
            raise ConfigurationError("this Checkpointer is closed; make a new one")
        self._outcomes.raise_if_fenced()

    def _let_go(self) -> None:
        if self._agreement is not None:
            self._agreement.finish(_FINISH_SECONDS)
        self._handlers.restore()
        if self._saver is not None:
            self._saver.attempt.close()
        leave_ranks(self._ranks)
        if self._client is not None:
            self._client.close()


def _close_at_exit(reference: weakref.ref[Checkpointer]) -> None:
    """At interpreter exit: block until the last save is committed, or say that it is not."""
    keeper = reference()
    if keeper is None:
        return
    try:
        keeper.close()
    except ShardkeepError as error:
        _LOGGER.error("the last save was not committed at exit: %s", error)
