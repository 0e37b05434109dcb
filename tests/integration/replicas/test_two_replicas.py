"""Two service processes serve one save together, and one of them may die at any moment of it."""

from __future__ import annotations

from functools import partial

import numpy as np

from shardkeep.protocol import routes
from shardkeep.protocol.identifiers import new_launch_id
from tests.servers.cluster import Cluster
from tests.unit.service.replicas.at_once import all_equal, at_once
from tests.unit.service.training import Training, whole_weight

WORLD_SIZE = 4


def test_ranks_of_one_save_that_talk_to_different_replicas_commit_one_checkpoint(both: list[Training]) -> None:
    launch = new_launch_id()
    attempt = at_once(*(partial(one.begin, WORLD_SIZE, launch_id=launch) for one in both))[0]
    at_once(*(partial(both[rank % 2].decide, attempt) for rank in range(WORLD_SIZE)))
    packed = both[0].pack_all(1, WORLD_SIZE)

    def save(rank: int) -> str:
        """One rank, whose requests go to one replica and then to the other."""
        there, elsewhere = both[rank % 2], both[(rank + 1) % 2]
        opened = there.open(attempt, save=1, step=1, rank=rank, world_size=WORLD_SIZE)
        elsewhere.upload(opened["checkpoint_id"], rank, packed[rank])
        there.hand_in(opened["checkpoint_id"], rank, packed[rank])
        return str(opened["checkpoint_id"])

    saved = at_once(*(partial(save, rank) for rank in range(WORLD_SIZE)))

    assert all_equal(saved)
    for one in both:
        assert one.service.wait_until_settled(saved[0])["state"] == "committed"
        assert one.latest_id() == saved[0]
        assert np.array_equal(one.load(saved[0]), whole_weight(1, WORLD_SIZE))


def test_a_save_commits_through_the_other_replica_when_one_is_killed_in_the_middle(
    cluster: Cluster, both: list[Training]
) -> None:
    survivor, killed = both
    attempt = survivor.start()
    packed = survivor.pack_all(1)
    checkpoint = killed.open_all(attempt, save=1, step=1)
    killed.upload(checkpoint, 0, packed[0])
    killed.hand_in(checkpoint, 0, packed[0])
    killed.upload(checkpoint, 1, packed[1])

    cluster.replicas[1].kill()
    try:
        survivor.hand_in(checkpoint, 1, packed[1])
        assert survivor.service.wait_until_settled(checkpoint)["state"] == "committed"
        assert np.array_equal(survivor.load(checkpoint), whole_weight(1, 2))
    finally:
        cluster.replicas[1].start()
    assert killed.latest_id() == checkpoint


def test_a_commit_whose_replica_dies_before_it_is_finished_by_the_worker(
    cluster: Cluster, both: list[Training]
) -> None:
    survivor, killed = both
    attempt = survivor.start()
    for save in range(1, 4):
        packed = survivor.pack_all(save)
        checkpoint = survivor.open_all(attempt, save=save, step=save)
        for rank, one in enumerate(packed):
            survivor.upload(checkpoint, rank, one)
        survivor.hand_in(checkpoint, 0, packed[0])
        killed.hand_in(checkpoint, 1, packed[1])  # it validates; whatever it had done of that by now
        cluster.replicas[1].kill()
        try:
            assert survivor.service.wait_until_settled(checkpoint)["state"] == "committed"
        finally:
            cluster.replicas[1].start()
    assert killed.info(checkpoint)["sequence"] == 3


def test_the_resume_decision_asked_of_both_at_once_is_one(both: list[Training]) -> None:
    first, second = both
    attempt = first.start(fresh=True)
    first.save(attempt, save=1, step=1)
    resuming = second.begin(WORLD_SIZE)
    answers = at_once(*(partial(both[rank % 2].decide, resuming) for rank in range(WORLD_SIZE)))
    assert all_equal([answer["checkpoint"]["id"] for answer in answers])


def test_two_last_manifests_at_two_replicas_are_one_commit(both: list[Training]) -> None:
    attempt = both[0].start()
    for save in range(1, 6):
        packed = both[0].pack_all(save)
        checkpoint = both[0].open_all(attempt, save=save, step=save)
        for rank, one in enumerate(packed):
            both[rank].upload(checkpoint, rank, one)
        at_once(*(partial(both[rank].hand_in, checkpoint, rank, packed[rank]) for rank in (0, 1)))
        assert both[1].service.wait_until_settled(checkpoint)["state"] == "committed"
        assert both[0].info(checkpoint)["sequence"] == save


def test_an_attempt_begun_at_one_fences_a_save_that_the_other_is_committing(both: list[Training]) -> None:
    first, second = both
    for turn in range(5):
        attempt = first.start(fresh=True)
        packed = first.pack_all(turn)
        checkpoint = first.open_all(attempt, save=1, step=turn)
        for rank, one in enumerate(packed):
            first.upload(checkpoint, rank, one)
        first.hand_in(checkpoint, 0, packed[0])
        path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=1)
        last = partial(first.service.send, "PUT", path, content=packed[1].manifest)
        begun = partial(second.begin, 2)
        _, newer = at_once(last, begun)
        state = second.service.wait_until_settled(checkpoint)
        assert state["state"] in ("committed", "aborted")
        if state["state"] == "aborted":
            assert state["abort"]["code"] == "superseded"
        assert second.service.ask("GET", second.path(routes.RUN))["current_attempt_id"] == newer
        first.service.refused(
            "attempt_fenced",
            "POST",
            routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt),
            {"save": 2, "step": turn + 1, "rank": 0, "world_size": 2},
        )
