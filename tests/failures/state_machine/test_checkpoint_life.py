"""The life of checkpoints under random sequences of requests, crashes of timing and lost time, against a pure model.

The service is the real application over a real SQLite file and directory; its clock is moved by hand.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import select

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep_service.checkpoints.chunk_ids import all_stored, unpack_ids
from shardkeep_service.checkpoints.expiry import expire_checkpoints
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.projects.models import Project
from tests.failures.state_machine.model import FRESH, ModelAttempt, ModelCheckpoint, ModelRun
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Packed, Training, pack, weights, whole_weight

LEASE_SECONDS = 120.0
DEADLINE_SECONDS = 600.0
RANKS = st.integers(0, 2)
INDEX = st.integers(0, 1000)


class CheckpointLife(RuleBasedStateMachine):
    """Every rule sends real requests, expects what the model says, and moves the model on."""

    service: ClassVar[LocalService]
    examples: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        CheckpointLife.examples += 1
        self.training = Training(self.service, project=f"life-{self.examples}")
        self.model = ModelRun()
        self.clock = 0.0
        self.since_begin = 0
        """Openings and arrivals since the last attempt began: attempts that save nothing show little."""
        self.loaded: set[tuple[str, int]] = set()

    def teardown(self) -> None:
        """Leaves nothing open that would expire in the next example."""
        self.training.begin()

    # --- attempts ----------------------------------------------------------------------------------------------------

    @initialize(world_size=st.integers(1, 3))
    def start(self, world_size: int) -> None:
        self._begin(world_size)
        self._decide(self._current(), fresh=False)

    @precondition(lambda self: self.since_begin >= 5)
    @rule(world_size=st.integers(1, 3), decide=st.booleans())
    def begin_attempt(self, world_size: int, decide: bool) -> None:
        self._begin(world_size)
        if decide and not self._would_refuse():
            self._decide(self._current(), fresh=False)

    def repeat_the_beginning_of_some_attempt(self, index: int, rank: int) -> None:
        attempt = self._pick(self.model.attempts, index)
        again = self.training.begin(attempt.world_size, launch_id=attempt.launch_id, ordinal=attempt.ordinal)
        assert again == attempt.id

    @precondition(lambda self: self.model.current and not self._can_open())
    @rule(fresh=st.booleans(), index=INDEX, by_id=st.booleans())
    def decide_resume(self, fresh: bool, index: int, by_id: bool) -> None:
        attempt = self._current()
        usable = [one for one in self.model.checkpoints.values() if one.state == "committed"]
        if by_id and usable:
            self._decide(attempt, checkpoint=usable[index % len(usable)].id)
        elif self._would_refuse() and not fresh:
            path = routes.path(routes.RESUME, attempt=attempt.id)
            problem = self.service.refused("no_usable_checkpoint", "POST", path, {})
            assert len(problem["passed_over"]) == min(100, len(self.model.checkpoints))
        else:
            self._decide(attempt, fresh=fresh)

    def ask_again_what_was_decided(self, index: int, rank: int) -> None:
        attempt = self._pick(self.model.attempts, index)
        path = routes.path(routes.RESUME, attempt=attempt.id)
        if attempt.decision is not None:
            answer = self.service.ask("POST", path, {})
            found = FRESH if answer["fresh"] else answer["checkpoint"]["id"]
            assert found == attempt.decision
        elif attempt.id != self.model.current:
            self.service.refused("attempt_fenced", "POST", path, {})

    # --- saves -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._can_open())
    @rule(step=st.integers(0, 6), ranks=st.sets(RANKS, min_size=1), everyone=st.booleans())
    def open_save(self, step: int, ranks: set[int], everyone: bool) -> None:
        attempt = self._current()
        attempt.saves += 1
        chosen = sorted(rank for rank in (range(3) if everyone else ranks) if rank < attempt.world_size) or [0]
        if self.model.step_is_committed(attempt.id, step):
            body = {"save": attempt.saves, "step": step, "rank": chosen[0], "world_size": attempt.world_size}
            path = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt.id)
            self.service.refused("step_already_committed", "POST", path, body)
            return
        for rank in chosen:
            self._open(attempt, attempt.saves, step, rank)

    @precondition(lambda self: self._can_open())
    @rule(step=st.integers(0, 6))
    def save_whole(self, step: int) -> None:
        before = set(self.model.checkpoints)
        self.open_save(step, {0}, everyone=True)
        for checkpoint_id in set(self.model.checkpoints) - before:
            checkpoint = self.model.checkpoints[checkpoint_id]
            for rank in range(checkpoint.world_size):
                packed = self._packed(checkpoint, rank)
                self.training.upload(checkpoint.id, rank, packed)
                self.training.hand_in(checkpoint.id, rank, packed)
                self._arrived(checkpoint, rank)

    @precondition(lambda self: self._open_ones())
    @rule(index=INDEX, rank=RANKS)
    def join_or_repeat_an_open(self, index: int, rank: int) -> None:
        checkpoint = self._pick_open(index)
        attempt = self.model.attempts[checkpoint.attempt]
        self._open(attempt, checkpoint.save, checkpoint.step, rank % checkpoint.world_size)

    def open_with_another_step_is_refused(self, index: int, rank: int) -> None:
        if not self.model.checkpoints:
            return
        checkpoint = self._pick(self.model.checkpoints, index)
        body = {
            "save": checkpoint.save,
            "step": checkpoint.step + 50,
            "rank": 0,
            "world_size": checkpoint.world_size,
        }
        path = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=checkpoint.attempt)
        code = "step_disagrees" if checkpoint.attempt == self.model.current else "attempt_fenced"
        self.service.refused(code, "POST", path, body)

    @precondition(lambda self: self._open_ones())
    @rule(index=INDEX, rank=RANKS, upload=st.sampled_from([True, True, True, False]))
    def hand_in(self, index: int, rank: int, upload: bool) -> None:
        checkpoint = self._pick_open(index)
        rank %= checkpoint.world_size
        packed = self._packed(checkpoint, rank)
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint.id, rank=rank)
        if rank not in checkpoint.leases:
            self.training.upload(checkpoint.id, rank, packed)
            self.service.refused("checkpoint_not_open", "PUT", path, content=packed.manifest)
            return
        if not upload and not self._chunks_are_stored(packed):
            self.service.refused("chunks_missing", "PUT", path, content=packed.manifest)
            return
        self.training.upload(checkpoint.id, rank, packed)
        self.training.hand_in(checkpoint.id, rank, packed)
        checkpoint.leases[rank] = self.clock + LEASE_SECONDS
        self._arrived(checkpoint, rank)

    @precondition(lambda self: self._open_ones())
    @rule(index=INDEX)
    def all_ranks_hand_in_at_once(self, index: int) -> None:
        checkpoint = self._ready(index)
        barrier = threading.Barrier(2 * checkpoint.world_size)

        def send(number: int) -> None:
            rank = number % checkpoint.world_size
            packed = self._packed(checkpoint, rank)
            barrier.wait(30)
            self.training.hand_in(checkpoint.id, rank, packed)

        with ThreadPoolExecutor(2 * checkpoint.world_size) as pool:
            list(pool.map(send, range(2 * checkpoint.world_size)))
        for rank in range(checkpoint.world_size):
            self._arrived(checkpoint, rank)

    @precondition(lambda self: self._open_ones())
    @rule(index=INDEX, what=st.sampled_from(["begin", "abort"]))
    def something_happens_between_index_and_commit(self, index: int, what: str) -> None:
        checkpoint = self._ready(index)
        reached, release = threading.Event(), threading.Event()

        def block(checkpoint_id: str) -> None:
            if checkpoint_id == checkpoint.id:
                reached.set()
                assert release.wait(30)

        validator = self.service.control.validator
        validator.before_commit = block
        try:
            for rank in range(checkpoint.world_size):
                self.training.hand_in(checkpoint.id, rank, self._packed(checkpoint, rank))
            assert reached.wait(30)
            checkpoint.version += 1
            checkpoint.arrived = set(range(checkpoint.world_size))
            if what == "begin":
                self._begin(checkpoint.world_size)
            else:
                self._abort(checkpoint)
        finally:
            release.set()
            validator.before_commit = lambda _: None
        validator.wait_until_idle()

    def a_late_manifest_of_an_aborted_save_is_dropped(self, index: int, rank: int) -> None:
        if not self._of_state("aborted"):
            return
        checkpoint = self._pick_from(self._of_state("aborted"), index)
        rank %= checkpoint.world_size
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint.id, rank=rank)
        self.service.refused("checkpoint_aborted", "PUT", path, content=self._packed(checkpoint, rank).manifest)

    def a_manifest_after_the_commit_changes_nothing(self, index: int, rank: int) -> None:
        if not self._of_state("committed", "deleted"):
            return
        checkpoint = self._pick_from(self._of_state("committed", "deleted"), index)
        rank %= checkpoint.world_size
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint.id, rank=rank)
        if index % 2:
            assert (
                self.training.hand_in(checkpoint.id, rank, self._packed(checkpoint, rank))["arrived"]
                == checkpoint.world_size
            )
        else:
            other = self._packed(checkpoint, rank, content=checkpoint.content + 1)
            self.service.refused("save_content_disagrees", "PUT", path, content=other.manifest)

    @precondition(lambda self: self._open_ones())
    @rule(index=INDEX)
    def abort(self, index: int) -> None:
        self._abort(self._pick_open(index))

    def aborting_what_was_committed_is_refused(self, index: int, rank: int) -> None:
        if not self._of_state("committed", "deleted"):
            return
        checkpoint = self._pick_from(self._of_state("committed", "deleted"), index)
        path = routes.path(routes.ABORT, checkpoint=checkpoint.id)
        self.service.refused("checkpoint_not_open", "POST", path, {"rank": 0, "reason": "late"})

    # --- time --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self._open_ones())
    @rule(index=INDEX)
    def beat(self, index: int) -> None:
        checkpoint = self._pick_open(index)
        for rank in checkpoint.leases:
            self.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint.id, rank=rank))
            checkpoint.leases[rank] = max(checkpoint.leases[rank], self.clock + LEASE_SECONDS)

    @precondition(lambda self: self._open_ones())
    @rule(seconds=st.sampled_from([30.0, 30.0, 100.0, 130.0, 700.0]))
    def time_passes_and_what_lapsed_expires(self, seconds: float) -> None:
        self.clock += seconds
        self.service.advance(seconds)
        lapsed = [one for one in self._open_ones() if self._is_lapsed(one)]
        assert sorted(expire_checkpoints(self.service.context)) == sorted(one.id for one in lapsed)
        for checkpoint in lapsed:
            self.model.abort(checkpoint)

    # --- keeping and letting go --------------------------------------------------------------------------------------

    @precondition(lambda self: self._of_state("committed", "deleted"))
    @rule(index=INDEX)
    def delete(self, index: int) -> None:
        checkpoint = self._pick_from(self._of_state("committed", "deleted"), index)
        seen = checkpoint.version
        if checkpoint.state == "committed" and checkpoint.pinned:
            assert self._change("DELETE", routes.CHECKPOINT, checkpoint, seen) == "checkpoint_pinned"
            return
        if checkpoint.state == "committed":
            checkpoint.deleted_at_versions.append(seen)
            checkpoint.state, checkpoint.version = "deleted", seen + 1
        assert self._change("DELETE", routes.CHECKPOINT, checkpoint, seen) == "deleted"
        assert self._change("DELETE", routes.CHECKPOINT, checkpoint, seen) == "deleted"

    @precondition(lambda self: self._of_state("deleted"))
    @rule(index=INDEX)
    def restore(self, index: int) -> None:
        checkpoint = self._pick_from(self._of_state("deleted"), index)
        seen = checkpoint.version
        if self.model.step_is_committed(checkpoint.attempt, checkpoint.step, besides=checkpoint.id):
            assert self._change("POST", routes.RESTORE, checkpoint, seen) == "step_already_committed"
            return
        checkpoint.state, checkpoint.version = "committed", seen + 1
        assert self._change("POST", routes.RESTORE, checkpoint, seen) == "committed"
        assert self._change("POST", routes.RESTORE, checkpoint, seen) == "committed"

    @precondition(lambda self: any(one.deleted_at_versions for one in self.model.checkpoints.values()))
    @rule(index=INDEX)
    def a_delete_repeated_after_a_restore_deletes_nothing(self, index: int) -> None:
        known = [one for one in self.model.checkpoints.values() if one.deleted_at_versions]
        checkpoint = self._pick_from(known, index)
        seen = checkpoint.deleted_at_versions[-1]
        answer = self._change("DELETE", routes.CHECKPOINT, checkpoint, seen)
        assert answer == ("deleted" if checkpoint.version == seen + 1 else "version_changed")

    @precondition(lambda self: self._of_state("committed"))
    @rule(index=INDEX)
    def pin_or_unpin(self, index: int) -> None:
        checkpoint = self._pick_from(self._of_state("committed"), index)
        seen = checkpoint.version
        method = "DELETE" if checkpoint.pinned else "PUT"
        checkpoint.pinned, checkpoint.version = not checkpoint.pinned, seen + 1
        assert self._change(method, routes.PIN, checkpoint, seen) == "committed"
        assert self._change(method, routes.PIN, checkpoint, seen) == "committed"

    def a_fenced_attempt_deletes_nothing(self, index: int, rank: int) -> None:
        if not self._of_state("committed"):
            return
        checkpoint = self._pick_from(self._of_state("committed"), index)
        fenced = [one for one in self.model.attempts if one != self.model.current]
        if not fenced:
            return
        acting = fenced[rank % len(fenced)]
        answer = self._change("DELETE", routes.CHECKPOINT, checkpoint, checkpoint.version, attempt=acting)
        assert answer == "attempt_fenced"

    # --- what comes late or again ------------------------------------------------------------------------------------

    @rule(kind=st.integers(0, 6), index=INDEX, rank=RANKS)
    def late_or_repeated_request(self, kind: int, index: int, rank: int) -> None:
        (
            self.repeat_the_beginning_of_some_attempt,
            self.ask_again_what_was_decided,
            self.open_with_another_step_is_refused,
            self.a_late_manifest_of_an_aborted_save_is_dropped,
            self.a_manifest_after_the_commit_changes_nothing,
            self.aborting_what_was_committed_is_refused,
            self.a_fenced_attempt_deletes_nothing,
        )[kind](index, rank)

    # --- what must always hold ---------------------------------------------------------------------------------------

    @invariant()
    def latest_is_the_highest_sequence_on_the_line(self) -> None:
        assert self.training.latest_id() == self.model.latest()

    @invariant()
    def the_service_knows_what_the_model_knows(self) -> None:
        with self.service.database.read() as session:
            query = select(Checkpoint).join(Project, Project.id == Checkpoint.project_id)
            found_rows = session.scalars(query.where(Project.name == self.training.project))
            rows = {row.id: row for row in found_rows}
        assert rows.keys() == self.model.checkpoints.keys()
        for one in self.model.checkpoints.values():
            row = rows[one.id]
            found = (row.state, row.sequence, row.version, row.pinned, row.arrived)
            assert found == (one.state, one.sequence, one.version, one.pinned, len(one.arrived)), one

    @invariant()
    def what_was_committed_is_all_there(self) -> None:
        with self.service.database.read() as session:
            for checkpoint in self._of_state("committed", "deleted"):
                query = select(ManifestRow).where(ManifestRow.checkpoint_id == checkpoint.id)
                rows = session.scalars(query).all()
                assert {row.rank for row in rows} == set(range(checkpoint.world_size))
                for row in rows:
                    assert self.service.blob_store.size(row.object_key) == row.size_bytes
                    ids = unpack_ids(row.chunk_ids)
                    assert len(ids)
                    assert all_stored(session, ids)
                    for chunk in session.scalars(select(Chunk).where(Chunk.id.in_(ids.tolist()))):
                        assert self.service.blob_store.size(chunk.object_key) == chunk.size_bytes

    @invariant()
    def what_is_committed_loads_bit_equal(self) -> None:
        for checkpoint in self._of_state("committed"):
            if (checkpoint.id, checkpoint.version) in self.loaded:
                continue
            expected = whole_weight(checkpoint.content, checkpoint.world_size)
            assert np.array_equal(self.training.load(checkpoint.id), expected)
            self.loaded.add((checkpoint.id, checkpoint.version))

    # --- how ---------------------------------------------------------------------------------------------------------

    def _begin(self, world_size: int) -> None:
        launch_id = new_launch_id()
        attempt = self.training.begin(world_size, launch_id=launch_id)
        self.model.begin(ModelAttempt(attempt, launch_id, 0, world_size))
        self.since_begin = 0

    def _decide(self, attempt: ModelAttempt, *, fresh: bool = False, checkpoint: str | None = None) -> None:
        body: dict[str, Any] = {"checkpoint_id": checkpoint} if checkpoint else {"fresh": fresh}
        answer = self.training.decide(attempt.id, **body)
        expected = FRESH if fresh else checkpoint or self.model.latest() or FRESH
        assert (FRESH if answer["fresh"] else answer["checkpoint"]["id"]) == expected
        attempt.decision = expected

    def _would_refuse(self) -> bool:
        return bool(self.model.checkpoints) and self.model.latest() is None

    def _open(self, attempt: ModelAttempt, save: int, step: int, rank: int) -> None:
        answer = self.training.open(attempt.id, save=save, step=step, rank=rank, world_size=attempt.world_size)
        known = self.model.checkpoints.get(answer["checkpoint_id"])
        if known is None:
            assert not any(one.attempt == attempt.id and one.save == save for one in self.model.checkpoints.values()), (
                "a second checkpoint of one save"
            )
            assert answer["parent_id"] == self.model.latest(attempt.id)
            known = ModelCheckpoint(
                answer["checkpoint_id"], attempt.id, save, step, attempt.world_size, len(self.model.checkpoints)
            )
            known.deadline = self.clock + DEADLINE_SECONDS
            self.model.checkpoints[known.id] = known
        assert (answer["state"], answer["arrived"]) == (known.state, rank in known.arrived)
        known.leases[rank] = max(known.leases.get(rank, 0.0), self.clock + LEASE_SECONDS)
        self.since_begin += 1

    def _ready(self, index: int) -> ModelCheckpoint:
        """An open checkpoint that every rank has opened and uploaded for."""
        checkpoint = self._pick_open(index)
        attempt = self.model.attempts[checkpoint.attempt]
        for rank in range(checkpoint.world_size):
            self._open(attempt, checkpoint.save, checkpoint.step, rank)
            self.training.upload(checkpoint.id, rank, self._packed(checkpoint, rank))
        return checkpoint

    def _arrived(self, checkpoint: ModelCheckpoint, rank: int) -> None:
        if rank in checkpoint.arrived:
            return
        checkpoint.arrived.add(rank)
        if len(checkpoint.arrived) == checkpoint.world_size:
            self.service.control.validator.wait_until_idle()
            self.model.commit(checkpoint)

    def _abort(self, checkpoint: ModelCheckpoint) -> None:
        body = {"rank": 0, "reason": "told to"}
        path = routes.path(routes.ABORT, checkpoint=checkpoint.id)
        assert self.service.ask("POST", path, body)["state"] == "aborted"
        self.model.abort(checkpoint)
        assert self.service.ask("POST", path, body)["state"] == "aborted"

    def _change(
        self, method: str, template: str, checkpoint: ModelCheckpoint, version: int, *, attempt: str | None = None
    ) -> str:
        headers = {"if-match": f'"{version}"', **({routes.ATTEMPT_HEADER: attempt} if attempt else {})}
        answer = self.service.send(method, routes.path(template, checkpoint=checkpoint.id), headers=headers)
        document = answer.json()
        return str(document["state"] if answer.is_success else document["code"])

    def _packed(self, checkpoint: ModelCheckpoint, rank: int, *, content: int | None = None) -> Packed:
        seed = checkpoint.content if content is None else content
        parts = weights(seed, checkpoint.world_size)[rank]
        return pack(parts, rank=rank, world_size=checkpoint.world_size, step=checkpoint.step)

    def _chunks_are_stored(self, packed: Packed) -> bool:
        digests = [ref.digest for ref, _ in packed.chunks]
        with self.service.database.read() as session:
            query = select(Chunk.id).join(Project, Project.id == Chunk.project_id)
            query = query.where(Project.name == self.training.project, Chunk.digest.in_(digests))
            return len(session.scalars(query).all()) == len(digests)

    def _is_lapsed(self, checkpoint: ModelCheckpoint) -> bool:
        silent = any(lease < self.clock for rank, lease in checkpoint.leases.items() if rank not in checkpoint.arrived)
        return silent or (checkpoint.deadline < self.clock and len(checkpoint.leases) < checkpoint.world_size)

    def _current(self) -> ModelAttempt:
        assert self.model.current is not None
        return self.model.attempts[self.model.current]

    def _can_open(self) -> bool:
        return self.model.current is not None and self._current().decision is not None

    def _open_ones(self) -> list[ModelCheckpoint]:
        return self._of_state("open")

    def _of_state(self, *states: str) -> list[ModelCheckpoint]:
        return [one for one in self.model.checkpoints.values() if one.state in states]

    def _pick_open(self, index: int) -> ModelCheckpoint:
        return self._pick_from(self._open_ones(), index)

    @staticmethod
    def _pick(known: dict[str, Any], index: int) -> Any:
        return list(known.values())[index % len(known)]

    @staticmethod
    def _pick_from(known: list[ModelCheckpoint], index: int) -> ModelCheckpoint:
        return known[index % len(known)]


@pytest.fixture(scope="module", autouse=True)
def one_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One service for all examples; each has a project of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    directory = tmp_path_factory.mktemp("life")
    with LocalService(
        directory, lease_seconds=LEASE_SECONDS, open_deadline_seconds=DEADLINE_SECONDS
    ) as CheckpointLife.service:
        yield
    structlog.reset_defaults()


TestCheckpointLife = CheckpointLife.TestCase
TestCheckpointLife.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking against a real service takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
