"""Saves that contradict themselves, each other or what is committed."""

from __future__ import annotations

import dataclasses
import itertools
import struct
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import AttemptFenced, ConfigurationError, SaveConflict, SaveFailed, ServiceError
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.protocol import routes
from shardkeep.protocol.messages import BeginAttempt, OpenCheckpoint
from shardkeep.store.attempt import Attempt
from tests.failures.bad_input.kept_checkpoint import Kept, assert_says
from tests.integration.service.test_uploads import limit_file_size
from tests.service_process import ServiceProcess
from tests.unit.service.training import pack, weights

_launches = itertools.count(1)


def begin_ranks(kept: Kept, count: int) -> list[Attempt]:
    """An attempt as each rank has it, decided."""
    launch = f"{next(_launches):032x}"
    run = kept.other_run_object()
    attempts = [run.begin_attempt(sk.World(rank, count, launch), ordinal=0) for rank in range(count)]
    for attempt in attempts:
        assert attempt.decide_resume().checkpoint is not None
    return attempts


def stage(
    attempt: Attempt, step: int, name: str, dtype: str, shape: tuple[int, ...], region: Region, fill: int = 1
) -> sk.SaveHandle:
    """A save of one slice whose bytes are all `fill`."""

    def fill_in(start: int, out: memoryview) -> None:
        out[:] = bytes([fill]) * out.nbytes

    with attempt.start_save(step, expected_bytes=1 << 20) as writer:
        writer.stage(name, dtype, shape, region, SliceKind.PARAMETER, fill=fill_in)
        return writer.finish()


def failure_of(handle: sk.SaveHandle) -> Any:
    with pytest.raises(SaveFailed) as caught:
        handle.wait(60)
    return caught.value


def test_a_repeated_manifest(kept: Kept) -> None:
    training = kept.training()
    manifest = kept.client.service.manifest(kept.checkpoint.id, 0)
    path = routes.path(routes.MANIFEST, checkpoint=kept.checkpoint.id, rank=0)
    first = training.service.ask("PUT", path, content=manifest)
    assert training.service.ask("PUT", path, content=manifest) == first
    assert (first["state"], first["checkpoint_id"]) == ("committed", kept.checkpoint.id)
    other = pack(weights(3, 1)[0], rank=0, world_size=1, step=10)
    problem = training.service.refused("save_content_disagrees", "PUT", path, content=other.manifest)
    assert_says(problem, "save_content_disagrees", "another save needs")


def test_E11_ranks_that_disagree_about_the_step(kept: Kept) -> None:
    first, second = begin_ranks(kept, 2)
    waiting = stage(first, 11, "w", "float32", (2, 4), Region((0, 0), (1, 4)))
    assert waiting.checkpoint_id
    disagreeing = stage(second, 12, "w", "float32", (2, 4), Region((1, 0), (1, 4)))
    failed = failure_of(disagreeing)
    assert failed.code == "step_disagrees"
    assert "11" in str(failed)
    assert "12" in str(failed)
    assert "must count steps and saves alike" in str(failed)
    started = time.monotonic()
    failure_of(waiting)
    assert time.monotonic() - started < 60, "the other rank need not wait for a lease to lapse"


def test_an_attempt_that_is_no_longer_current(kept: Kept) -> None:
    old = kept.other_run_object()
    old.resume()
    handle_before = old.save(11, {"w": np.zeros(3)})
    kept_id = kept.checkpoint.id
    handle_before.wait(60).delete()
    new = kept.other_run_object()
    resumed = new.resume()
    assert resumed is not None
    assert resumed.id == kept_id
    with pytest.raises(AttemptFenced) as caught:
        old.save(12, {"w": np.zeros(3)}).wait(60)
    assert_says(caught.value, "attempt_fenced", "stop this job, or resume again")
    with pytest.raises(AttemptFenced):
        old.save(13, {"w": np.zeros(3)}).wait(60)


def test_a_world_size_that_disagrees(kept: Kept) -> None:
    first, _ = begin_ranks(kept, 2)
    service = kept.client.service
    with pytest.raises(ServiceError) as caught:
        service.open_checkpoint(first.id, OpenCheckpoint(save=0, step=11, rank=2, world_size=3))
    assert_says(caught.value, "world_size_disagrees", "begin another attempt for another world")
    again = BeginAttempt(launch_id=first.info.launch_id, ordinal=0, world_size=3)
    with pytest.raises(SaveConflict) as conflict:
        service.begin_attempt(kept.run.project, kept.run.name, again)
    assert_says(conflict.value, "world_size_disagrees", "another launch|begin another attempt")
    training = kept.training()
    checkpoint = training.open_all(first.id, save=0, step=11)
    packed = pack(weights(11, 3)[0], rank=0, world_size=3, step=11)
    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    problem = training.service.refused("world_size_disagrees", "PUT", path, content=packed.manifest)
    assert_says(problem, "world_size_disagrees", "world size 2.*3.*all ranks must")


def test_a_rank_out_of_range(kept: Kept) -> None:
    with pytest.raises(ConfigurationError, match="rank 2 of a world of 2"):
        sk.World(2, 2, "ab" * 16)
    first, _ = begin_ranks(kept, 2)
    training = kept.training()
    body = {"save": 0, "step": 11, "rank": 2, "world_size": 2}
    opened = routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=first.id)
    says = "ranks count from 0 to 1"
    assert_says(training.service.refused("rank_out_of_range", "POST", opened, body), "rank_out_of_range", says)
    checkpoint = training.open_all(first.id, save=0, step=11)
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", routes.path(routes.BEAT, checkpoint=checkpoint, rank=2), {}),
        ("POST", routes.path(routes.ABORT, checkpoint=checkpoint), {"body": {"rank": 2, "reason": "x"}}),
        (
            "PUT",
            routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=2),
            {"content": pack(weights(11, 3)[2], rank=2, world_size=3, step=11).manifest},
        ),
        (
            "POST",
            routes.path(routes.NEGOTIATE, checkpoint=checkpoint),
            {"body": {"rank": 2, "chunks": [{"digest": "0" * 64, "size": 1, "crc64": 0}]}},
        ),
    ]
    for method, path, options in requests:
        problem = training.service.refused("rank_out_of_range", method, path, **options)
        assert_says(problem, "rank_out_of_range", says)


def test_a_manifest_that_names_unknown_chunks(kept: Kept) -> None:
    training = kept.training()
    attempt = training.start(1)
    checkpoint = training.open_all(attempt, save=0, step=11, world_size=1)
    packed = pack(weights(11, 1)[0], rank=0, world_size=1, step=11)
    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    problem = training.service.refused("chunks_missing", "PUT", path, content=packed.manifest)
    assert_says(problem, "chunks_missing", "upload them and send the manifest again")
    assert problem["chunks"] == [packed.chunks[0][0].digest]


@pytest.mark.parametrize(
    ("code", "second"),
    [
        ("coverage_gap", ("w", "float32", (4, 4), Region((3, 0), (1, 4)), 1)),
        ("coverage_gap", ("w", "float32", (4, 4), Region((2, 0), (2, 3)), 1)),
        ("overlap_conflict", ("w", "float32", (4, 4), Region((1, 0), (3, 4)), 2)),
        ("dtype_disagrees", ("w", "bfloat16", (4, 4), Region((2, 0), (2, 4)), 1)),
        ("shape_disagrees", ("w", "float32", (4, 8), Region((2, 0), (2, 4)), 1)),
        ("shape_disagrees", ("w", "float32", (16,), Region((8,), (8,)), 1)),
    ],
)
def test_shards_that_do_not_fit_together(
    kept: Kept, code: str, second: tuple[str, str, tuple[int, ...], Region, int]
) -> None:
    attempts = begin_ranks(kept, 2)
    handles = [
        stage(attempts[0], 11, "w", "float32", (4, 4), Region((0, 0), (2, 4))),
        stage(attempts[1], 11, *second),
    ]
    for handle in handles:
        failed = failure_of(handle)
        assert (failed.code, failed.step, failed.tensors) == (code, 11, ("w",))
        assert "'w'" in str(failed) or "w" in failed.tensors
    assert kept.client.checkpoint(handles[0].checkpoint_id).state == "aborted"


def test_a_late_manifest_of_an_aborted_save(kept: Kept) -> None:
    training = kept.training()
    attempt = training.start(2)
    checkpoint = training.open_all(attempt, save=0, step=11)
    packed = training.pack_all(11)
    for rank in range(2):
        training.upload(checkpoint, rank, packed[rank])
    training.hand_in(checkpoint, 0, packed[0])
    training.service.ask("POST", routes.path(routes.ABORT, checkpoint=checkpoint), {"rank": 0, "reason": "killed"})
    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=1)
    problem = training.service.refused("checkpoint_aborted", "PUT", path, content=packed[1].manifest)
    assert_says(problem, "checkpoint_aborted", "killed; what arrives now is dropped, save again")
    assert training.info(checkpoint)["state"] == "aborted"


def test_a_manifest_of_a_newer_version(kept: Kept) -> None:
    training = kept.training()
    attempt = training.start(1)
    checkpoint = training.open_all(attempt, save=0, step=11, world_size=1)
    packed = pack(weights(11, 1)[0], rank=0, world_size=1, step=11)
    training.upload(checkpoint, 0, packed)
    path = routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0)
    for change in (struct.pack("<HH", 2, 0), struct.pack("<HH", 1, 1)):
        newer = dataclasses.replace(packed, manifest=packed.manifest[:4] + change + packed.manifest[8:])
        problem = training.service.refused("unsupported_version", "PUT", path, content=newer.manifest)
        assert_says(problem, "unsupported_version", "upgrade the service before its clients")


def test_a_full_disk(tmp_path: Path) -> None:
    """The service gets a file size limit, which the kernel enforces on its writes as it does a full disk."""
    with (
        ServiceProcess(tmp_path / "service") as service,
        sk.connect(service.url, service.token, codec="raw") as client,
    ):
        kept = Kept.save(service, client, "bad-input/full")
        run = kept.other_run_object()
        run.resume()
        big = {"w": np.random.default_rng(1).integers(0, 256, 6 << 20, np.uint8)}
        limit_file_size(service.pid, 3 << 20)
        started = time.monotonic()
        with pytest.raises(SaveFailed, match=r"step 11.*no space left; free some or enlarge it") as caught:
            run.save(11, big).wait(60)
        assert caught.value.code == "storage_full"
        assert time.monotonic() - started < 60, "a full disk is not retried until the window ends"
        kept.assert_nothing_was_lost()
        limit_file_size(service.pid, -1)
        run = kept.other_run_object()
        run.resume()
        assert run.save(11, big).wait(60).step == 11
    assert threading.active_count() < 50
