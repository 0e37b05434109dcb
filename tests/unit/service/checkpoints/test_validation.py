"""Validation and commit: only what is whole and consistent is committed, in one transaction, by one owner."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from sqlalchemy import update

from shardkeep.format.segments import SliceKind, ValueRecord
from shardkeep.protocol import routes
from shardkeep_service.checkpoints.models import Checkpoint
from shardkeep_service.chunks.models import Chunk, ChunkState
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Part, Training, pack, weights, whole_weight

pytestmark = BOTH_DATABASES

WHOLE = np.arange(8, dtype=np.float32).reshape(2, 4)


def _save(training: Training, *parts: list[Part], step: int = 1, save: int = 1, attempt: str | None = None) -> str:
    attempt = attempt or training.start(len(parts))
    packed = [pack(mine, rank=rank, world_size=len(parts), step=step) for rank, mine in enumerate(parts)]
    checkpoint = training.open_all(attempt, save=save, step=step, world_size=len(parts))
    training.finish(checkpoint, packed)
    return checkpoint


@pytest.mark.parametrize(
    ("code", "shape", "second"),
    [
        ("coverage_gap", (3, 4), Part("w", (3, 4), 2, WHOLE[:0])),
        ("shape_disagrees", (3, 4), Part("w", (2, 4), 0, WHOLE[:0])),
        ("replicas_diverged", (2, 4), Part("w", (2, 4), 0, WHOLE + 1, witness=True)),
        ("overlap_conflict", (3, 4), Part("w", (3, 4), 1, WHOLE + 9)),
    ],
)
def test_what_is_not_whole_or_not_consistent_is_aborted_with_code_tensor_and_ranks(
    training: Training, code: str, shape: tuple[int, ...], second: Part
) -> None:
    checkpoint = _save(training, [Part("w", shape, 0, WHOLE)], [second])

    info = training.info(checkpoint)

    assert (info["state"], info["abort"]["code"], info["abort"]["tensors"]) == ("aborted", code, ["w"])
    assert "w" in info["abort"]["reason"]
    assert training.latest_id() is None


def test_buffers_that_differ_are_kept_per_rank_and_reported(training: Training) -> None:
    parts = [[Part("mean", (2, 4), 0, WHOLE + rank, SliceKind.BUFFER)] for rank in range(2)]

    info = training.info(_save(training, *parts))

    assert info["state"] == "committed"
    assert info["report"]["divergent_buffers"] == ["mean"]


def test_tensors_that_the_parent_had_and_nobody_names_are_reported(training: Training) -> None:
    attempt = training.start(1)
    _save(training, [Part("kept", (2, 4), 0, WHOLE), Part("gone", (2, 4), 0, WHOLE)], attempt=attempt)

    second = _save(training, [Part("kept", (2, 4), 0, WHOLE)], attempt=attempt, save=2, step=2)

    assert training.info(second)["report"]["tensors_gone"] == ["gone"]


def test_values_that_differ_between_ranks_are_reported_unless_flagged(training: Training) -> None:
    attempt = training.start(2)
    checkpoint = training.open_all(attempt, save=1, step=1)
    packed = []
    for rank in range(2):
        values = [
            ValueRecord("epoch", b"same", False),
            ValueRecord("seen", bytes([rank]), False),
            ValueRecord("rng", bytes([rank]), True),
            *([ValueRecord("own-1", b"x", True)] if rank == 1 else []),
        ]
        packed.append(pack(weights(1, 2)[rank], rank=rank, world_size=2, step=1, values=values))
    training.finish(checkpoint, packed)

    report = training.info(checkpoint)["report"]
    assert report["per_rank_values"] == ["own-1", "seen"], "a reader of rank 0's manifest would not know of own-1"
    assert report["values_of_some_ranks"] == {}


def test_values_that_only_some_ranks_have_are_reported_with_the_lowest_of_them(training: Training) -> None:
    attempt = training.start(4)
    checkpoint = training.open_all(attempt, save=1, step=1, world_size=4)
    packed = []
    for rank in range(4):
        values = [
            ValueRecord("everywhere", b"same", False),
            *([ValueRecord("stage-0", b"x", False)] if rank < 2 else []),
            *([ValueRecord("stage-1", b"y", False), ValueRecord("replica", bytes([rank]), False)] if rank >= 2 else []),
        ]
        packed.append(pack(weights(1, 4)[rank], rank=rank, world_size=4, step=1, values=values))
    training.finish(checkpoint, packed)

    report = training.info(checkpoint)["report"]
    assert report["values_of_some_ranks"] == {"stage-0": 0, "stage-1": 2}
    assert report["per_rank_values"] == ["replica"]


def test_metrics_are_means_with_rank_0_beside_and_nan_loses_no_save(training: Training) -> None:
    attempt = training.start(2)
    checkpoint = training.open_all(attempt, save=1, step=1)
    given = [{"loss": 1.0, "bad": math.nan, "top": math.inf}, {"loss": 3.0, "bad": 1.0, "top": 1.0}]
    training.finish(
        checkpoint,
        [pack(weights(1, 2)[rank], rank=rank, world_size=2, step=1, metrics=given[rank]) for rank in range(2)],
    )

    metrics = training.info(checkpoint)["metrics"]

    assert metrics["loss"] == 2.0
    assert metrics["loss@rank0"] == 1.0
    assert (metrics["bad"], metrics["bad@rank0"], metrics["top"]) == ("NaN", "NaN", "Infinity")


def test_E191_numbers_in_the_environment_that_json_lacks_lose_no_save(training: Training) -> None:
    given = {"nan": math.nan, "down": -math.inf, "big": 18446744073709551615, "exact": 2**53 - 1, "on": True, "n": 0.5}
    packed = [pack(weights(1, 1)[0], rank=0, world_size=1, step=1, environment=given)]

    saved = training.save(training.start(1), save=1, step=1, world_size=1, packed=packed)

    assert training.info(saved)["environment"] == {
        **given, "nan": "NaN", "down": "-Infinity", "big": "18446744073709551615",
    }  # fmt: skip


def test_E15_metrics_environment_and_sizes_become_visible_with_the_commit_and_not_before(training: Training) -> None:
    attempt = training.start(1)
    checkpoint = training.open_all(attempt, save=1, step=1, world_size=1)
    packed = pack(weights(1, 1)[0], rank=0, world_size=1, step=1, metrics={"loss": 2.0}, environment={"torch": "2.13"})
    reached, release = threading.Event(), threading.Event()

    def block(_: str) -> None:
        reached.set()
        release.wait(20)

    training.service.control.validator.before_commit = block
    training.upload(checkpoint, 0, packed)
    training.hand_in(checkpoint, 0, packed)
    assert reached.wait(20)
    before = training.info(checkpoint)
    release.set()
    training.service.wait_until_settled(checkpoint)
    after = training.info(checkpoint)

    assert (before["state"], before["metrics"], before["environment"], before["raw_bytes"]) == (
        "validating",
        {},
        {},
        None,
    )
    assert (after["metrics"], after["environment"]) == ({"loss": 2.0}, {"torch": "2.13"})
    assert (after["raw_bytes"], after["stored_bytes"], after["new_bytes"], after["tensors"]) == (32, 32, 32, 1)


def test_unchanged_chunks_count_as_stored_and_not_as_new(training: Training) -> None:
    attempt = training.start(1)
    _save(training, [Part("w", (2, 4), 0, WHOLE)], attempt=attempt)

    second = _save(
        training, [Part("w", (2, 4), 0, WHOLE), Part("x", (2, 4), 0, WHOLE + 1)], attempt=attempt, save=2, step=2
    )

    info = training.info(second)
    assert (info["stored_bytes"], info["new_bytes"]) == (64, 32)


def test_an_attempt_that_begins_between_index_and_commit_prevents_the_commit(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    begun: list[str] = []
    training.service.control.validator.before_commit = lambda _: begun.append(training.begin())

    state = training.finish(checkpoint, training.pack_all(10))
    training.service.control.validator.wait_until_idle()

    assert (state["state"], state["abort"]["code"]) == ("aborted", "superseded")
    assert len(begun) == 1
    assert training.info(checkpoint)["state"] == "aborted"
    assert training.latest_id() is None


def test_an_abort_between_index_and_commit_prevents_the_commit(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    body = {"rank": 0, "reason": "changed my mind"}
    path = routes.path(routes.ABORT, checkpoint=checkpoint)

    def abort(_: str) -> None:
        training.service.ask("POST", path, body)

    training.service.control.validator.before_commit = abort

    training.finish(checkpoint, training.pack_all(10))
    training.service.control.validator.wait_until_idle()

    assert training.info(checkpoint)["state"] == "aborted"


def test_a_validation_whose_lease_lapsed_does_not_commit_and_is_taken_over(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    lapse = training.service.settings.validation_lease_seconds + 1
    validator = training.service.control.validator
    late = threading.Event()

    def sleep_in(_: str) -> None:
        if not late.is_set():
            training.service.advance(lapse)
            late.set()

    validator.before_commit = sleep_in
    for rank, one in enumerate(training.pack_all(10)):
        training.upload(checkpoint, rank, one)
        training.hand_in(checkpoint, rank, one)
    assert late.wait(20)
    validator.wait_until_idle()

    assert training.info(checkpoint)["state"] == "validating"
    assert validator.take_over() == [checkpoint]
    assert training.service.wait_until_settled(checkpoint)["state"] == "committed"


@pytest.mark.parametrize("when", ["before validation", "before commit"])
def test_chunks_lost_meanwhile_reopen_the_checkpoint_and_are_named_to_the_ranks_that_need_them(
    training: Training, when: str
) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    lost = packed[1].chunks[0][0].digest
    training.upload(checkpoint, 0, packed[0])
    training.upload(checkpoint, 1, packed[1])

    def lose(_: str = "") -> None:
        with training.service.database.write() as session:
            session.execute(update(Chunk).where(Chunk.digest == lost).values(state=ChunkState.QUARANTINED.value))
        training.service.control.validator.before_commit = lambda _: None

    training.hand_in(checkpoint, 1, packed[1])
    if when == "before commit":
        training.service.control.validator.before_commit = lose
    else:
        lose()
    training.hand_in(checkpoint, 0, packed[0])
    state = training.service.wait_until_settled(checkpoint)

    assert (state["state"], state["arrived"], state["waiting_for"]) == ("open", 1, [1])
    beat = training.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=1))
    assert beat["missing_chunks"] == [lost]
    other = training.service.ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=0))
    assert other["missing_chunks"] == []
    assert training.finish(checkpoint, packed)["state"] == "committed"
    assert np.array_equal(training.load(checkpoint), whole_weight(10, 2))


def test_two_open_saves_of_one_step_commit_once(training: Training) -> None:
    attempt = training.start()
    first, second = training.open_all(attempt, save=1, step=10), training.open_all(attempt, save=2, step=10)
    assert training.finish(first, training.pack_all(10))["state"] == "committed"

    state = training.finish(second, training.pack_all(10))

    assert (state["state"], state["abort"]["code"]) == ("aborted", "step_already_committed")


def test_a_manifest_object_that_was_damaged_in_the_store_aborts_by_name(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    packed = training.pack_all(10)
    training.upload(checkpoint, 0, packed[0])
    training.hand_in(checkpoint, 0, packed[0])
    [path] = (training.service.settings.data_dir / "blobs" / "objects").rglob(f"manifests/{checkpoint}/0.*")
    path.chmod(0o600)
    path.write_bytes(b"x" * path.stat().st_size)

    training.upload(checkpoint, 1, packed[1])
    training.hand_in(checkpoint, 1, packed[1])
    state = training.service.wait_until_settled(checkpoint)

    assert (state["state"], state["abort"]["code"]) == ("aborted", "chunk_damaged")


def test_a_validation_that_a_crash_left_is_finished_at_the_next_start(training: Training) -> None:
    checkpoint = training.open_all(training.start(), save=1, step=10)
    training.finish(checkpoint, training.pack_all(10))
    with training.service.database.write() as session:
        row = session.get_one(Checkpoint, checkpoint)
        row.state, row.sequence, row.validation_owner = "validating", None, "somebody-else"
        row.validation_until = training.service.database.now(session) + 10_000_000

    if not training.service.database.is_sqlite:  # another replica may be at it: its lease must lapse first
        training.service.control.start()
        training.service.advance(11)
    training.service.control.start()

    assert training.service.wait_until_settled(checkpoint)["state"] == "committed"
