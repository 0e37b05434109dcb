"""One training effort: its checkpoints, and saving and resuming plain states."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any, Literal

from shardkeep.connection.keeping_client import KeepingClient
from shardkeep.connection.request_client import RequestClient
from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import ConfigurationError
from shardkeep.protocol.messages import (
    AttemptInfo,
    BeginAttempt,
    CheckpointState,
    CheckpointSummary,
    PassedOver,
    ResumeDecision,
    RetentionAnswer,
    RetentionPlanAnswer,
    RetentionRules,
    RunInfo,
    SaveRequestInfo,
)
from shardkeep.store.attempt import Attempt
from shardkeep.store.checkpoint import Checkpoint
from shardkeep.store.plain_saves import PlainSaver
from shardkeep.store.save_handle import SaveHandle
from shardkeep.store.world import World
from shardkeep.uploader.settings import UploadSettings

_log = logging.getLogger("shardkeep")


class Run:
    """A run by name. Making this object asks the service nothing, and reading never begins an attempt."""

    def __init__(
        self,
        service: ServiceClient,
        project: str,
        name: str,
        *,
        settings: UploadSettings,
        on_save: Callable[[Run], None] = lambda _: None,
    ) -> None:
        self._on_save = on_save
        self.project = project
        self.name = name
        self._service = service
        self._settings = settings
        self._ordinal = 0
        self._world: World | None = None
        self._saver: PlainSaver | None = None
        self._last: SaveHandle | None = None

    def __repr__(self) -> str:
        return f"Run({self.project}/{self.name})"

    def with_settings(
        self, *, staging_bytes: int | None = None, codec: Literal["auto", "raw", "zstd", "planes"] | None = None
    ) -> Run:
        """The same run with other upload settings where they are given, and attempts of its own."""
        settings = replace(
            self._settings,
            staging_bytes=self._settings.staging_bytes if staging_bytes is None else staging_bytes,
            codec=codec or self._settings.codec,
        )
        return Run(self._service, self.project, self.name, settings=settings)

    # --- reading -----------------------------------------------------------------------------------------------------

    def info(self) -> RunInfo:
        """The run as the service knows it; NotFound if it does not."""
        return self._service.run_info(self.project, self.name)

    def attempts(self) -> Iterator[AttemptInfo]:
        """The run's attempts, newest first."""
        return self._service.run_attempts(self.project, self.name)

    def latest(self) -> Checkpoint | None:
        """The last consistent checkpoint on the run's line; None only if nothing is committed there."""
        answer = self._service.latest(self.project, self.name)
        return Checkpoint(self._service, answer.checkpoint) if answer.checkpoint is not None else None

    def passed_over(self) -> list[PassedOver]:
        """The checkpoints newer than `latest()`, each with the reason why it is not the latest."""
        return self._service.latest(self.project, self.name).passed_over

    def checkpoints(
        self,
        *,
        limit: int | None = None,
        state: CheckpointState | str | None = None,
        step: int | None = None,
        step_min: int | None = None,
        step_max: int | None = None,
        pinned: bool | None = None,
        on_line: bool | None = None,
    ) -> Iterator[CheckpointSummary]:
        """The run's checkpoints in any state, newest first."""
        return self._service.checkpoints(
            self.project,
            self.name,
            limit=limit,
            state=CheckpointState(state) if state is not None else None,
            step=step,
            step_min=step_min,
            step_max=step_max,
            pinned=pinned,
            on_line=on_line,
        )

    def checkpoint(self, step: int) -> Checkpoint:
        """The newest committed checkpoint of a step, on the current line if there is one, never another step's.

        CheckpointNotCommitted if the step was opened and not committed; NotFound if it never was.
        """
        return find_step(self._service, self.project, self.name, step)

    def tagged(self, tag: str) -> Checkpoint | None:
        """The newest committed checkpoint of this run with a tag; None if there is none."""
        found = self._service.checkpoints(self.project, self.name, tag=tag, state=CheckpointState.COMMITTED, limit=1)
        return next((Checkpoint(self._service, self._service.checkpoint(one.id)) for one in found), None)

    # --- asking the job that trains it -------------------------------------------------------------------------------

    def request_save(self) -> SaveRequestInfo:
        """Ask the run's current attempt, wherever it trains, to save at its next step; returns at once.

        While a request waits, this is the same one. Conflict `no_attempt` where nothing has begun to train the run.
        """
        return RequestClient(self._service.transport).request_save(self.project, self.name)

    def save_request(self) -> SaveRequestInfo:
        """The last request of the current attempt: `none`, `waiting`, `saving` or `done`, and the checkpoint."""
        return RequestClient(self._service.transport).save_request(self.project, self.name)

    # --- keeping -----------------------------------------------------------------------------------------------------

    def retention(self) -> RetentionAnswer:
        """The policy set for this run, and the one in force."""
        return self._keeping.policy(self.project, self.name)

    def set_retention(self, rules: RetentionRules) -> RetentionAnswer:
        """Set this run's policy, in place of its project's. Needs an admin token of the project."""
        return self._keeping.set_policy(self.project, self.name, rules)

    def plan_retention(self, rules: RetentionRules | None = None) -> RetentionPlanAnswer:
        """What the policy in force, or `rules` in its place, would delete now, with every reason. Deletes nothing."""
        return self._keeping.plan(self.project, self.name, rules)

    def delete(self, *, force: bool = False) -> RunInfo:
        """Delete the run and its checkpoints; they can be restored until they are purged. Its name is free at once.

        Conflict while its current attempt is saving or one of its checkpoints is pinned, unless forced.
        """
        info = self.info()
        return self._keeping.delete_run(info.id, info.version, force=force)

    @property
    def _keeping(self) -> KeepingClient:
        return KeepingClient(self._service.transport)

    # --- saving and resuming plain states ----------------------------------------------------------------------------

    def begin_attempt(
        self, world: World, ordinal: int | None = None, labels: Mapping[str, str] | None = None
    ) -> Attempt:
        """Begin the `ordinal`-th attempt of this launch; older attempts can save no more from now on.

        Without `ordinal` they are counted by this object. A run that this call made is logged.
        """
        self._ensure()
        if ordinal is None:
            ordinal = self._ordinal
        self._ordinal = max(self._ordinal, ordinal) + 1
        message = BeginAttempt(
            launch_id=world.launch_id, ordinal=ordinal, world_size=world.world_size, labels=dict(labels or {})
        )
        attempt = self._service.begin_attempt(self.project, self.name, message)
        return Attempt(self._service, attempt, rank=world.rank, settings=self._settings)

    def resume(self, checkpoint: str | Checkpoint | None = None, *, fresh: bool = False) -> Checkpoint | None:
        """Begin an attempt and say what it continues from; None only for a run without checkpoints or `fresh=True`.

        NoUsableCheckpoint, with the list, if checkpoints were opened and none can be used.
        """
        attempt, decision = self._begin(
            checkpoint.id if isinstance(checkpoint, Checkpoint) else checkpoint, fresh=fresh
        )
        self._saver = PlainSaver(attempt)
        if decision.checkpoint is None:
            return None
        resumed = Checkpoint(self._service, decision.checkpoint)
        attempt.set_history(resumed.id, resumed.slices_of(attempt.rank, attempt.world_size))
        return resumed

    def save(
        self,
        step: int,
        state: MutableMapping[str, Any],
        metrics: Mapping[str, float] | None = None,
        *,
        fresh: bool = False,
    ) -> SaveHandle:
        """Save a nested dict of arrays, tensors and values; returns once all is staged.

        Without `resume()` before, into a run that has checkpoints, this is a ConfigurationError unless `fresh=True`. A
        save before this one that failed without anybody asking raises its error here.
        """
        self.raise_unobserved()
        if self._saver is None:
            self._saver = PlainSaver(self._begin_to_save(fresh=fresh))
        self._on_save(self)
        self._last = self._saver.save(step, state, metrics or {})
        return self._last

    def raise_unobserved(self) -> None:
        """Raise what the last save failed with, if it has ended and nobody was told."""
        last = self._last
        if last is None or not last.done() or last.observed:
            return
        error = last.exception()
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait for the save in flight; raises what it failed with, if nobody was told."""
        if self._saver is not None:
            self._saver.attempt.close()
        self.raise_unobserved()

    def _ensure(self) -> RunInfo:
        info = self._service.ensure_run(self.project, self.name)
        if info.created:
            _log.warning("run %s/%s is new: the service did not know it before", self.project, self.name)
        return info

    def _begin(self, checkpoint_id: str | None, *, fresh: bool) -> tuple[Attempt, ResumeDecision]:
        if self._saver is not None:
            self._saver.attempt.close()
        if self._world is None:
            self._world = World.from_environment()
        attempt = self.begin_attempt(self._world)
        return attempt, attempt.decide_resume(checkpoint_id, fresh=fresh)

    def _begin_to_save(self, *, fresh: bool) -> Attempt:
        if not fresh and self._ensure().checkpoints:
            raise ConfigurationError(
                f"{self.project}/{self.name} has checkpoints: call run.resume() first to continue them, or give "
                "fresh=True to start over beside them (they stay)"
            )
        return self._begin(None, fresh=fresh)[0]


def find_step(service: ServiceClient, project: str, run: str, step: int) -> Checkpoint:
    """See `Run.checkpoint`."""
    from shardkeep.store.checkpoint_search import newest_of_step

    return Checkpoint(service, newest_of_step(service, project, run, step))
