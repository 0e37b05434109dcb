"""What transactions of two replicas do to each other's rows, step by step: who waits, and for whom nobody waits."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

import pytest
from sqlalchemy import func, select, update

from shardkeep.protocol import routes
from shardkeep_service.checkpoints import commit
from shardkeep_service.checkpoints.aborting import abort_now, superseded
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow, RankSession
from shardkeep_service.checkpoints.repository import lock_checkpoint
from shardkeep_service.chunks import healing
from shardkeep_service.chunks.healing import quarantine_checkpoints, release_healed_checkpoints
from shardkeep_service.chunks.models import Chunk, ChunkState
from shardkeep_service.chunks.state_lock import lock_chunk_states
from tests.unit.service.local_service import LocalService
from tests.unit.service.replicas.at_once import at_once
from tests.unit.service.training import Part, Training, pack, whole_weight

Replicas: TypeAlias = tuple[Training, Training]
SOON_SECONDS = 0.3
"""Longer than anything takes that waits for nobody."""


def in_background(threads: ThreadPoolExecutor, action: Any, *arguments: Any) -> Future[Any]:
    """Begins it and gives it the time to come to where it waits."""
    begun = threads.submit(action, *arguments)
    time.sleep(SOON_SECONDS)
    return begun


def test_a_beat_waits_for_no_transaction_that_holds_its_session(replicas: Replicas) -> None:
    first, second = replicas
    checkpoint = first.open_all(first.start(), save=1, step=1)
    with second.service.database.write() as session:
        mine = RankSession.checkpoint_id == checkpoint
        session.execute(update(RankSession).where(mine, RankSession.rank == 0).values(missing_chunks=["held"]))
        for rank in (0, 1):
            answer = first.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=rank))
            assert answer["state"] == "open", "one that waits is refused once its lock timeout is over"


def test_beats_of_many_ranks_at_both_replicas_beside_an_abort_never_fail(replicas: Replicas) -> None:
    first, second = replicas
    attempt = first.start(8)
    for save in range(1, 5):
        checkpoint = first.open_all(attempt, save=save, step=save, world_size=8)
        beats = [
            partial(
                replicas[turn % 2].service.ask, "POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=turn % 8)
            )
            for turn in range(16)
        ]
        body = {"rank": 0, "reason": "enough"}
        abort = partial(second.service.ask, "POST", routes.path(routes.ABORT, checkpoint=checkpoint), body)
        assert at_once(*beats, abort)[-1]["state"] == "aborted"


def test_a_rank_that_joins_while_the_checkpoint_is_aborted_elsewhere_learns_it_and_leaves_no_session(
    replicas: Replicas,
) -> None:
    first, second = replicas
    attempt = first.start()
    opened = first.open(attempt, save=1, step=1, rank=0)
    with ThreadPoolExecutor(1) as threads:
        with second.service.database.write() as session:
            checkpoint = lock_checkpoint(session, opened["checkpoint_id"])
            abort_now(session, checkpoint, superseded(2, "somebody"))
            session.flush()
            joining = in_background(threads, partial(first.open, attempt, save=1, step=1, rank=1))
            assert not joining.done()
        assert joining.result(30)["state"] == "aborted"
    with first.service.database.read() as session:
        assert session.scalar(select(func.count()).select_from(RankSession)) == 0


def test_a_chunk_quarantined_while_a_checkpoint_that_names_it_commits_takes_it_with_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas
    waited: list[bool] = []
    done: list[Future[Any]] = []
    flip = commit._flip

    def quarantine_meanwhile(*arguments: Any, **named: Any) -> None:
        quarantining = in_background(threads, _quarantine_every_chunk, second.service)
        waited.append(not quarantining.done())
        done.append(quarantining)
        flip(*arguments, **named)

    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(commit, "_flip", quarantine_meanwhile)
        checkpoint = first.save(first.start(), save=1, step=1)
        done[0].result(30)
    assert waited == [True]
    assert first.info(checkpoint)["quarantined"]
    assert second.latest_id() is None


def test_a_checkpoint_is_not_given_back_when_another_of_its_chunks_is_damaged_meanwhile(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas
    checkpoint = first.save(first.start(), save=1, step=1)
    ids = _set_states(first.service, ChunkState.QUARANTINED, only=0)
    quarantine_checkpoints(first.service.context, _project_of(first.service, checkpoint), ids)
    assert first.info(checkpoint)["quarantined"]
    _set_states(first.service, ChunkState.STORED, only=0)
    judge = healing._judge

    def damaged_meanwhile(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(healing, "_judge", judge)
        others = _set_states(second.service, ChunkState.QUARANTINED, only=1)
        quarantine_checkpoints(second.service.context, arguments[1], others)
        return judge(*arguments, **named)

    monkeypatch.setattr(healing, "_judge", damaged_meanwhile)
    assert release_healed_checkpoints(first.service.context, _project_of(first.service, checkpoint)) == []
    assert first.info(checkpoint)["quarantined"]


def test_uploads_of_the_same_chunks_in_opposite_orders_never_wait_for_each_other(replicas: Replicas) -> None:
    first, _ = replicas
    attempt = first.start()
    for save in range(1, 5):
        checkpoint = first.open_all(attempt, save=save, step=save)
        parts = [Part(f"w{number}", (2, 4), 0, whole_weight(100 * save + number, 1)) for number in range(12)]
        packed = pack(parts, rank=0, world_size=2, step=save)
        uploads = [
            partial(_put_chunk, replicas[turn % 2], checkpoint, ref, data)
            for turn, (ref, data) in enumerate([*packed.chunks, *reversed(packed.chunks)])
        ]
        assert set(at_once(*uploads)) <= {200, 201}


def test_a_manifest_that_arrives_while_its_checkpoint_expires_is_dropped_or_counted_never_both(
    replicas: Replicas,
) -> None:
    first, second = replicas
    attempt = first.start(1)
    for save in range(1, 6):
        packed = first.pack_all(save, 1)[0]
        checkpoint = first.open_all(attempt, save=save, step=save, world_size=1)
        first.upload(checkpoint, 0, packed)
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
        body = {"rank": 0, "reason": "enough"}
        answers = at_once(
            partial(first.service.send, "PUT", path, content=packed.manifest),
            partial(second.service.send, "POST", routes.path(routes.ABORT, checkpoint=checkpoint), body),
        )
        state = second.service.wait_until_settled(checkpoint)["state"]
        with first.service.database.read() as session:
            manifests = session.scalar(select(func.count()).where(ManifestRow.checkpoint_id == checkpoint))
        assert answers[0].status == (202 if manifests else 409)
        assert state == "aborted" or manifests == 1


def test_deleting_a_project_beside_commits_of_its_runs_waits_for_them_and_deadlocks_with_none(
    replicas: Replicas,
) -> None:
    first, second = replicas
    for turn in range(4):
        training = Training(first.service, project=f"gone-{turn}")
        attempt = training.start(1)
        packed = training.pack_all(1, 1)[0]
        checkpoint = training.open_all(attempt, save=1, step=1, world_size=1)
        training.upload(checkpoint, 0, packed)
        project = second.service.ask("GET", f"/v1/projects/gone-{turn}")
        path = routes.path(routes.PROJECT_BY_ID, project=project["id"]) + "?force=true"
        answers = at_once(
            partial(_send_manifest, training, checkpoint, packed),
            partial(second.service.send, "DELETE", path, headers={"if-match": f'"{project["version"]}"'}),
        )
        assert answers[1].status == 200, answers[1].content
        assert answers[0].status in (202, 404, 409), answers[0].content


def _send_manifest(training: Training, checkpoint: str, packed: Any) -> Any:
    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    return training.service.send("PUT", path, content=packed.manifest)


def _put_chunk(training: Training, checkpoint: str, ref: Any, data: bytes) -> int:
    headers = {routes.CRC64_HEADER: f"{ref.crc64:016x}"}
    path = routes.path(routes.CHUNK, checkpoint=checkpoint, digest=ref.digest)
    return training.service.send("PUT", path, content=data, headers=headers, query={"rank": 0}).status


def _quarantine_every_chunk(service: LocalService) -> None:
    """As the service does it: the chunks first, and then what names them."""
    with service.database.write() as session:
        chunk = session.scalars(select(Chunk)).first()
        assert chunk is not None
        project_id = chunk.project_id
        lock_chunk_states(session, project_id)
        ids = session.scalars(select(Chunk.id)).all()
        session.execute(update(Chunk).values(state=ChunkState.QUARANTINED.value))
    quarantine_checkpoints(service.context, project_id, ids)


def _set_states(service: LocalService, state: ChunkState, *, only: int) -> list[int]:
    with service.database.write() as session:
        ids = sorted(session.scalars(select(Chunk.id)))[only : only + 1]
        session.execute(update(Chunk).where(Chunk.id.in_(ids)).values(state=state.value))
    return ids


def _project_of(service: LocalService, checkpoint_id: str) -> str:
    with service.database.read() as session:
        return session.get_one(Checkpoint, checkpoint_id).project_id
