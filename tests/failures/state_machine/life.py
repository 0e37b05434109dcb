"""Drives one run of a real service, action by action, and tells what the model expects of each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
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


class Life:
    """One run. Every action takes three numbers, sends real requests, expects what the model says, and moves it on."""

    def __init__(self, service: LocalService, project: str) -> None:
        self.service = service
        self.training = Training(service, project=project)
        self.model = ModelRun()
        self.clock = 0.0
        self.since_begin = 0
        """Openings since the last attempt began: attempts that save nothing show little."""
        self.loaded: set[tuple[str, int]] = set()
        self.begin(2)
        self.decide(self.current())

    def actions(self) -> list[Action]:
        """What can be done now; what shows most is listed several times."""
        open_now, kept = bool(self.open_ones()), bool(self.of_state("committed", "deleted"))
        committed = bool(self.of_state("committed"))
        deleted_once = any(one.deleted_at_versions for one in self.model.checkpoints.values())
        table: list[tuple[bool, int, Action]] = [
            (self.since_begin >= 4, 2, self.begin_attempt),
            (not self.can_open(), 9, self.decide_resume),
            (self.can_open(), 3, self.open_save),
            (self.can_open(), 5, self.save_whole),
            (open_now, 2, self.join_or_repeat_an_open),
            (open_now, 6, self.hand_in),
            (open_now, 3, self.all_ranks_hand_in_at_once),
            (open_now, 3, self.something_happens_between_index_and_commit),
            (open_now, 1, self.abort),
            (open_now, 3, self.beat),
            (open_now, 2, self.a_save_that_takes_long),
            (open_now, 2, self.time_passes_and_what_lapsed_expires),
            (kept, 3, self.delete),
            (bool(self.of_state("deleted")), 3, self.restore),
            (deleted_once, 2, self.a_delete_repeated_after_a_restore_deletes_nothing),
            (committed, 1, self.pin_or_unpin),
            (True, 1, self.repeat_the_beginning_of_some_attempt),
            (True, 2, self.ask_again_what_was_decided),
            (bool(self.model.checkpoints), 1, self.open_with_another_step_is_refused),
            (bool(self.of_state("aborted")), 2, self.a_late_manifest_of_an_aborted_save_is_dropped),
            (kept, 2, self.a_manifest_after_the_commit_changes_nothing),
            (kept, 1, self.aborting_what_was_committed_is_refused),
            (committed and len(self.model.attempts) > 1, 1, self.a_fenced_attempt_deletes_nothing),
        ]
        return [action for possible, weight, action in table if possible for _ in range(weight)]

    # --- actions -----------------------------------------------------------------------------------------------------

    def begin_attempt(self, index: int, rank: int, step: int) -> None:
        self.begin(1 + rank)
        if index % 2 and not self.would_refuse():
            self.decide(self.current(), fresh=False)

    def repeat_the_beginning_of_some_attempt(self, index: int, rank: int, step: int) -> None:
        attempt = self._pick(self.model.attempts, index)
        again = self.training.begin(attempt.world_size, launch_id=attempt.launch_id, ordinal=attempt.ordinal)
        assert again == attempt.id

    def decide_resume(self, index: int, rank: int, step: int) -> None:
        fresh, by_id = step == 0, rank == 0
        attempt = self.current()
        usable = [one for one in self.model.checkpoints.values() if one.state == "committed"]
        if by_id and usable:
            self.decide(attempt, checkpoint=usable[index % len(usable)].id)
        elif self.would_refuse() and not fresh:
            path = routes.path(routes.RESUME, attempt=attempt.id)
            problem = self.service.refused("no_usable_checkpoint", "POST", path, {})
            assert len(problem["passed_over"]) == min(100, len(self.model.checkpoints))
        else:
            self.decide(attempt, fresh=fresh)

    def ask_again_what_was_decided(self, index: int, rank: int, step: int) -> None:
        attempt = self._pick(self.model.attempts, index)
        path = routes.path(routes.RESUME, attempt=attempt.id)
        if attempt.decision is not None:
            answer = self.service.ask("POST", path, {})
            found = FRESH if answer["fresh"] else answer["checkpoint"]["id"]
            assert found == attempt.decision
        elif attempt.id != self.model.current:
            self.service.refused("attempt_fenced", "POST", path, {})

    # --- saves -------------------------------------------------------------------------------------------------------

    def open_save(self, index: int, rank: int, step: int) -> None:
        attempt = self.current()
        attempt.saves += 1
        everyone = list(range(attempt.world_size))
        chosen = everyone if index % 3 else [rank % attempt.world_size]
        if self.model.step_is_committed(attempt.id, step):
            body = {"save": attempt.saves, "step": step, "rank": chosen[0], "world_size": attempt.world_size}
            path = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt.id)
            self.service.refused("step_already_committed", "POST", path, body)
            return
        for rank in chosen:
            self._open(attempt, attempt.saves, step, rank)

    def save_whole(self, index: int, rank: int, step: int) -> None:
        before = set(self.model.checkpoints)
        self.open_save(1, rank, step)
        for checkpoint_id in set(self.model.checkpoints) - before:
            checkpoint = self.model.checkpoints[checkpoint_id]
            for rank in range(checkpoint.world_size):
                packed = self._packed(checkpoint, rank)
                self.training.upload(checkpoint.id, rank, packed)
                self.training.hand_in(checkpoint.id, rank, packed)
                self._arrived(checkpoint, rank)

    def join_or_repeat_an_open(self, index: int, rank: int, step: int) -> None:
        checkpoint = self._pick_open(index)
        attempt = self.model.attempts[checkpoint.attempt]
        self._open(attempt, checkpoint.save, checkpoint.step, rank % checkpoint.world_size)

    def open_with_another_step_is_refused(self, index: int, rank: int, step: int) -> None:
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

    def hand_in(self, index: int, rank: int, step: int) -> None:
        checkpoint = self._pick_open(index)
        rank %= checkpoint.world_size
        packed = self._packed(checkpoint, rank)
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint.id, rank=rank)
        if rank not in checkpoint.leases:
            self.training.upload(checkpoint.id, rank, packed)
            self.service.refused("checkpoint_not_open", "PUT", path, content=packed.manifest)
            return
        if step == 0 and not self._chunks_are_stored(packed):
            self.service.refused("chunks_missing", "PUT", path, content=packed.manifest)
            return
        self.training.upload(checkpoint.id, rank, packed)
        self.training.hand_in(checkpoint.id, rank, packed)
        checkpoint.leases[rank] = self.clock + LEASE_SECONDS
        self._arrived(checkpoint, rank)

    def all_ranks_hand_in_at_once(self, index: int, rank: int, step: int) -> None:
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

    def something_happens_between_index_and_commit(self, index: int, rank: int, step: int) -> None:
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
            if step % 2:
                self.begin(checkpoint.world_size)
            else:
                self._abort(checkpoint)
        finally:
            release.set()
            validator.before_commit = lambda _: None
        validator.wait_until_idle()

    def a_late_manifest_of_an_aborted_save_is_dropped(self, index: int, rank: int, step: int) -> None:
        if not self.of_state("aborted"):
            return
        checkpoint = self._pick_from(self.of_state("aborted"), index)
        rank %= checkpoint.world_size
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint.id, rank=rank)
        self.service.refused("checkpoint_aborted", "PUT", path, content=self._packed(checkpoint, rank).manifest)

    def a_manifest_after_the_commit_changes_nothing(self, index: int, rank: int, step: int) -> None:
        if not self.of_state("committed", "deleted"):
            return
        checkpoint = self._pick_from(self.of_state("committed", "deleted"), index)
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

    def abort(self, index: int, rank: int, step: int) -> None:
        self._abort(self._pick_open(index))

    def aborting_what_was_committed_is_refused(self, index: int, rank: int, step: int) -> None:
        if not self.of_state("committed", "deleted"):
            return
        checkpoint = self._pick_from(self.of_state("committed", "deleted"), index)
        path = routes.path(routes.ABORT, checkpoint=checkpoint.id)
        self.service.refused("checkpoint_not_open", "POST", path, {"rank": 0, "reason": "late"})

    # --- time --------------------------------------------------------------------------------------------------------

    def beat(self, index: int, rank: int, step: int) -> None:
        checkpoint = self._pick_open(index)
        for one in checkpoint.leases:
            if step % 2 and one in checkpoint.arrived:
                continue  # a rank that has handed in may well fall silent
            self.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint.id, rank=one))
            checkpoint.leases[one] = max(checkpoint.leases[one], self.clock + LEASE_SECONDS)

    def a_save_that_takes_long(self, index: int, rank: int, step: int) -> None:
        if step % 2:  # every rank is there, and one has handed in already
            checkpoint = self._ready(index)
            if len(checkpoint.arrived | {0}) < checkpoint.world_size:
                self.training.hand_in(checkpoint.id, 0, self._packed(checkpoint, 0))
                self._arrived(checkpoint, 0)
        else:
            index = self._a_save_with_a_rank_missing(index, step)
        for _ in range(8):
            self.beat(index, rank, step)
            self.clock += 80.0
            self.service.advance(80.0)
        self.time_passes_and_what_lapsed_expires(index, rank, 0)

    def _a_save_with_a_rank_missing(self, index: int, step: int) -> int:
        """Which of the open checkpoints not every rank has opened; one is opened for this where there can be one."""
        attempt = self.current()
        if self.can_open() and attempt.world_size > 1 and not self.model.step_is_committed(attempt.id, step):
            attempt.saves += 1
            self._open(attempt, attempt.saves, step, 0)
        partial = [row for row, one in enumerate(self.open_ones()) if len(one.leases) < one.world_size]
        return partial[-1] if partial else index

    def time_passes_and_what_lapsed_expires(self, index: int, rank: int, step: int) -> None:
        seconds = (30.0, 30.0, 30.0, 100.0, 100.0, 130.0, 700.0)[step]
        self.clock += seconds
        self.service.advance(seconds)
        lapsed = [one for one in self.open_ones() if self._is_lapsed(one)]
        assert sorted(expire_checkpoints(self.service.context)) == sorted(one.id for one in lapsed)
        for checkpoint in lapsed:
            self.model.abort(checkpoint)

    # --- keeping and letting go --------------------------------------------------------------------------------------

    def delete(self, index: int, rank: int, step: int) -> None:
        checkpoint = self._pick_from(self.of_state("committed", "deleted"), index)
        seen = checkpoint.version
        if checkpoint.state == "committed" and checkpoint.pinned:
            assert self._change("DELETE", routes.CHECKPOINT, checkpoint, seen) == "checkpoint_pinned"
            return
        if checkpoint.state == "committed":
            checkpoint.deleted_at_versions.append(seen)
            checkpoint.state, checkpoint.version = "deleted", seen + 1
        assert self._change("DELETE", routes.CHECKPOINT, checkpoint, seen) == "deleted"
        assert self._change("DELETE", routes.CHECKPOINT, checkpoint, seen) == "deleted"

    def restore(self, index: int, rank: int, step: int) -> None:
        checkpoint = self._pick_from(self.of_state("deleted"), index)
        seen = checkpoint.version
        if self.model.step_is_committed(checkpoint.attempt, checkpoint.step, besides=checkpoint.id):
            assert self._change("POST", routes.RESTORE, checkpoint, seen) == "step_already_committed"
            return
        checkpoint.state, checkpoint.version = "committed", seen + 1
        assert self._change("POST", routes.RESTORE, checkpoint, seen) == "committed"
        assert self._change("POST", routes.RESTORE, checkpoint, seen) == "committed"

    def a_delete_repeated_after_a_restore_deletes_nothing(self, index: int, rank: int, step: int) -> None:
        known = [one for one in self.model.checkpoints.values() if one.deleted_at_versions]
        checkpoint = self._pick_from(known, index)
        seen = checkpoint.deleted_at_versions[-1]
        answer = self._change("DELETE", routes.CHECKPOINT, checkpoint, seen)
        assert answer == ("deleted" if checkpoint.version == seen + 1 else "version_changed")

    def pin_or_unpin(self, index: int, rank: int, step: int) -> None:
        checkpoint = self._pick_from(self.of_state("committed"), index)
        seen = checkpoint.version
        method = "DELETE" if checkpoint.pinned else "PUT"
        checkpoint.pinned, checkpoint.version = not checkpoint.pinned, seen + 1
        assert self._change(method, routes.PIN, checkpoint, seen) == "committed"
        assert self._change(method, routes.PIN, checkpoint, seen) == "committed"

    def a_fenced_attempt_deletes_nothing(self, index: int, rank: int, step: int) -> None:
        if not self.of_state("committed"):
            return
        checkpoint = self._pick_from(self.of_state("committed"), index)
        fenced = [one for one in self.model.attempts if one != self.model.current]
        if not fenced:
            return
        acting = fenced[rank % len(fenced)]
        answer = self._change("DELETE", routes.CHECKPOINT, checkpoint, checkpoint.version, attempt=acting)
        assert answer == "attempt_fenced"

    # --- what must always hold ---------------------------------------------------------------------------------------

    def latest_is_the_highest_sequence_on_the_line(self) -> None:
        assert self.training.latest_id() == self.model.latest()

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

    def what_was_committed_is_all_there(self) -> None:
        with self.service.database.read() as session:
            for checkpoint in self.of_state("committed", "deleted"):
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

    def what_is_committed_loads_bit_equal(self) -> None:
        for checkpoint in self.of_state("committed"):
            if (checkpoint.id, checkpoint.version) in self.loaded:
                continue
            expected = whole_weight(checkpoint.content, checkpoint.world_size)
            assert np.array_equal(self.training.load(checkpoint.id), expected)
            self.loaded.add((checkpoint.id, checkpoint.version))

    # --- how ---------------------------------------------------------------------------------------------------------

    def begin(self, world_size: int) -> None:
        launch_id = new_launch_id()
        attempt = self.training.begin(world_size, launch_id=launch_id)
        self.model.begin(ModelAttempt(attempt, launch_id, 0, world_size))
        self.since_begin = 0

    def decide(self, attempt: ModelAttempt, *, fresh: bool = False, checkpoint: str | None = None) -> None:
        body: dict[str, Any] = {"checkpoint_id": checkpoint} if checkpoint else {"fresh": fresh}
        answer = self.training.decide(attempt.id, **body)
        expected = FRESH if fresh else checkpoint or self.model.latest() or FRESH
        assert (FRESH if answer["fresh"] else answer["checkpoint"]["id"]) == expected
        attempt.decision = expected

    def would_refuse(self) -> bool:
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

    def current(self) -> ModelAttempt:
        assert self.model.current is not None
        return self.model.attempts[self.model.current]

    def can_open(self) -> bool:
        return self.model.current is not None and self.current().decision is not None

    def open_ones(self) -> list[ModelCheckpoint]:
        return self.of_state("open")

    def of_state(self, *states: str) -> list[ModelCheckpoint]:
        return [one for one in self.model.checkpoints.values() if one.state in states]

    def _pick_open(self, index: int) -> ModelCheckpoint:
        return self._pick_from(self.open_ones(), index)

    @staticmethod
    def _pick(known: dict[str, Any], index: int) -> Any:
        return list(known.values())[index % len(known)]

    @staticmethod
    def _pick_from(known: list[ModelCheckpoint], index: int) -> ModelCheckpoint:
        return known[index % len(known)]


Action: TypeAlias = Callable[[int, int, int], None]
