"""One run served by two replicas at once: what the single writer of SQLite gives for free holds on PostgreSQL too."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import func, select

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep_service.checkpoints.models import Checkpoint, RankSession
from shardkeep_service.chunks.models import Chunk
from tests.unit.service.replicas.at_once import all_equal, at_once
from tests.unit.service.training import Packed, Training

Replicas: TypeAlias = tuple[Training, Training]
TIMES = 8
"""Races are tried again and again: one that is lost one time in three shows."""


def test_a_launch_that_begins_at_both_is_one_attempt(replicas: Replicas) -> None:
    for _ in range(TIMES):
        launch = new_launch_id()
        begun = at_once(*(partial(one.begin, 4, launch_id=launch) for one in replicas * 3))
        assert all_equal(begun)


def test_launches_that_begin_at_the_same_moment_get_numbers_of_their_own_and_the_last_is_current(
    replicas: Replicas,
) -> None:
    _, second = replicas
    begun = at_once(*(partial(one.begin, 2) for one in replicas * 5))
    infos = [second.service.ask("GET", routes.path(routes.ATTEMPT, attempt=attempt)) for attempt in begun]
    assert sorted(info["number"] for info in infos) == list(range(1, 11))
    assert [info["number"] for info in infos if info["current"]] == [10]


def test_ranks_that_resume_at_both_at_once_while_a_checkpoint_goes_are_told_the_same(replicas: Replicas) -> None:
    first, second = replicas
    attempt = first.start(fresh=True)
    for save in range(1, TIMES + 1):
        first.save(attempt, save=save, step=save)
    for _ in range(TIMES - 1):
        latest = second.latest_id()
        assert latest is not None
        resuming = first.begin(4)
        answers = at_once(
            *(partial(one.decide, resuming) for one in replicas * 2),
            partial(second.change, "DELETE", routes.CHECKPOINT, latest),
        )
        decided = [answer["checkpoint"]["id"] for answer in answers[:-1]]
        assert all_equal(decided)
        first.decide(first.begin(2), checkpoint_id=second.latest_id())


def test_ranks_that_open_a_save_at_both_are_in_one_checkpoint(replicas: Replicas) -> None:
    first, second = replicas
    attempt = first.start(8)
    for save in range(1, TIMES + 1):
        opened = at_once(
            *(
                partial(replicas[rank % 2].open, attempt, save=save, step=save, rank=rank, world_size=8)
                for rank in range(8)
            )
        )
        assert all_equal([one["checkpoint_id"] for one in opened])
        with first.service.database.read() as session:
            mine = RankSession.checkpoint_id == opened[0]["checkpoint_id"]
            assert session.scalar(select(func.count()).select_from(RankSession).where(mine)) == 8
    numbers = [one["id"] for one in second.service.ask("GET", second.path(routes.RUN_CHECKPOINTS))["items"]]
    assert len(numbers) == TIMES


def test_saves_that_are_opened_at_the_same_moment_are_numbered_one_by_one(replicas: Replicas) -> None:
    first, _ = replicas
    attempt = first.start(1)
    at_once(
        *(
            partial(replicas[save % 2].open, attempt, save=save, step=save, rank=0, world_size=1)
            for save in range(1, TIMES + 1)
        )
    )
    with first.service.database.read() as session:
        numbers = session.scalars(select(Checkpoint.number).order_by(Checkpoint.number)).all()
    assert numbers == list(range(1, TIMES + 1))


def test_two_last_manifests_at_two_replicas_begin_one_validation_and_commit_once(replicas: Replicas) -> None:
    first, second = replicas
    attempt = first.start()
    for save in range(1, TIMES + 1):
        packed = first.pack_all(save)
        checkpoint = first.open_all(attempt, save=save, step=save)
        for rank, one in enumerate(packed):
            replicas[rank].upload(checkpoint, rank, one)
        at_once(*(partial(replicas[rank].hand_in, checkpoint, rank, packed[rank]) for rank in (0, 1)))
        assert second.service.wait_until_settled(checkpoint)["state"] == "committed"
        assert first.info(checkpoint)["sequence"] == save


def test_checkpoints_that_commit_at_the_same_moment_get_sequences_of_their_own(replicas: Replicas) -> None:
    first, second = replicas
    attempt = first.start(1)
    saves = range(1, TIMES + 1)
    packed = {save: first.pack_all(save, 1)[0] for save in saves}
    ids = {save: first.open_all(attempt, save=save, step=save, world_size=1) for save in saves}
    for save in saves:
        first.upload(ids[save], 0, packed[save])
    at_once(*(partial(replicas[save % 2].hand_in, ids[save], 0, packed[save]) for save in saves))
    for checkpoint in ids.values():
        assert second.service.wait_until_settled(checkpoint)["state"] == "committed"
    assert sorted(first.info(checkpoint)["sequence"] for checkpoint in ids.values()) == list(saves)


def test_two_saves_of_one_step_never_both_commit(replicas: Replicas) -> None:
    first, second = replicas
    attempt = first.start(1)
    for turn in range(TIMES):
        packed = first.pack_all(turn, 1)[0]
        ids = [first.open_all(attempt, save=2 * turn + half, step=turn, world_size=1) for half in (1, 2)]
        for checkpoint in ids:
            first.upload(checkpoint, 0, packed)
        at_once(*(partial(one.hand_in, checkpoint, 0, packed) for one, checkpoint in zip(replicas, ids, strict=True)))
        states = sorted(second.service.wait_until_settled(checkpoint)["state"] for checkpoint in ids)
        assert states == ["aborted", "committed"]


def test_an_attempt_that_begins_at_one_while_the_other_commits_lets_no_older_save_through(replicas: Replicas) -> None:
    first, second = replicas
    for turn in range(TIMES):
        attempt = first.start(fresh=True)
        checkpoint = first.open_all(attempt, save=1, step=turn)
        packed = first.pack_all(turn)
        begun: list[str] = []
        first.service.control.validator.before_commit = partial(_begin_at, second, begun)
        for rank, one in enumerate(packed):
            first.upload(checkpoint, rank, one)
            first.hand_in(checkpoint, rank, one)
        state = first.service.wait_until_settled(checkpoint)
        assert (state["state"], state["abort"]["code"]) == ("aborted", "superseded")
        assert second.service.ask("GET", second.path(routes.RUN))["current_attempt_id"] == begun[0]
        first.service.control.validator.before_commit = lambda _: None


def test_beginning_and_committing_at_the_same_moment_ends_one_way_or_the_other(replicas: Replicas) -> None:
    first, second = replicas
    for turn in range(TIMES):
        attempt = first.start(1, fresh=True)
        packed = first.pack_all(turn, 1)[0]
        checkpoint = first.open_all(attempt, save=1, step=turn, world_size=1)
        first.upload(checkpoint, 0, packed)
        at_once(partial(_try_to_hand_in, first, checkpoint, packed), partial(second.begin, 1))
        state = second.service.wait_until_settled(checkpoint)["state"]
        assert state in ("committed", "aborted")
        if state == "committed":
            assert first.load(checkpoint).shape == (2, 4)


def test_one_chunk_uploaded_at_both_is_stored_once(replicas: Replicas) -> None:
    first, _ = replicas
    attempt = first.start(2)
    for save in range(1, TIMES + 1):
        packed = first.pack_all(save)[0]
        checkpoint = first.open_all(attempt, save=save, step=save)
        at_once(*(partial(one.upload, checkpoint, rank, packed) for rank, one in enumerate(replicas)))
        with first.service.database.read() as session:
            mine = Chunk.digest == packed.chunks[0][0].digest
            assert session.scalar(select(func.count()).select_from(Chunk).where(mine)) == 1


def test_the_rank_s_second_inventory_is_refused_at_whichever_replica_it_arrives(replicas: Replicas) -> None:
    first, _ = replicas
    for _turn in range(TIMES):
        attempt = first.begin(2)
        path = routes.path(routes.INVENTORY, attempt=attempt, layout=0, rank=0)
        bodies = [{"tensors": [{"name": "w", "dtype": "float32", "shape": [rows], "kind": 0}]} for rows in (1, 2)]
        answers = at_once(
            *(partial(one.service.send, "PUT", path, body) for one, body in zip(replicas, bodies, strict=True))
        )
        assert sorted(answer.status for answer in answers) == [200, 409], [answer.content for answer in answers]


def test_a_project_and_a_run_made_at_both_are_one(replicas: Replicas) -> None:
    for turn in range(TIMES):
        path = routes.path(routes.RUN, project=f"p{turn}", run="r")
        made: list[dict[str, Any]] = at_once(*(partial(one.service.ask, "PUT", path) for one in replicas * 2))
        assert all_equal([info["id"] for info in made])
        assert [info["created"] for info in made].count(True) == 1


def test_a_change_that_saw_the_same_version_at_both_happens_once(replicas: Replicas) -> None:
    first, _ = replicas
    attempt = first.start()
    for save in range(1, TIMES + 1):
        checkpoint = first.save(attempt, save=save, step=save)
        version = first.info(checkpoint)["version"]
        path, headers = routes.path(routes.PIN, checkpoint=checkpoint), {"if-match": f'"{version}"'}
        answers = at_once(
            *(
                partial(one.service.send, "PUT", path, {"reason": reason}, headers=headers)
                for one, reason in zip(replicas, ("mine", "yours"), strict=True)
            )
        )
        assert sorted(answer.status for answer in answers) == [200, 412]
        assert first.info(checkpoint)["version"] == version + 1


def _begin_at(training: Training, begun: list[str], _checkpoint_id: str) -> None:
    begun.append(training.begin())


def _try_to_hand_in(training: Training, checkpoint: str, packed: Packed) -> int:
    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    answer = training.service.send("PUT", path, content=packed.manifest)
    assert answer.status in (202, 409), answer.content
    return answer.status
