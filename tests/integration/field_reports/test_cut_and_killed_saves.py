"""Trials in which bytes stop coming: a cut upload that is committed all the same, a trainer killed in an upload."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import shardkeep as sk
from shardkeep.format.chunks import chunk_ref
from shardkeep.format.codecs import Codec
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.manifest import build_manifest, encode_manifest
from shardkeep.format.regions import Region
from shardkeep.format.segments import SEGMENT_BYTES, SegmentRef, SliceKind, SliceRecord
from shardkeep.protocol import routes
from tests.faulty_proxy import Exchange, FaultyProxy, Reply
from tests.integration.service.process_client import Payload, ProcessClient, started_upload
from tests.service_process import ServiceProcess
from tests.unit.service.training import Training
from tests.waiting import wait_until

MEBIBYTE = 1 << 20
PUT_CHUNK = r"PUT /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"


def test_E02_a_shard_cut_at_40_of_64_MiB_is_not_committed_by_a_manifest_that_claims_all(
    shared_service: ServiceProcess, client: sk.Client
) -> None:
    run = client.run("reports/cut")
    before = run.save(1, {"w": np.arange(10)}).wait(60)
    training = Training(ProcessClient(shared_service), "reports", "cut")
    checkpoint = training.open_all(training.start(1), save=0, step=2, world_size=1)
    data = np.random.default_rng(1).integers(0, 256, 64 * MEBIBYTE, np.uint8).tobytes()
    chunk = Payload(data, chunk_ref([data]))
    with started_upload(shared_service, checkpoint, chunk, sent_bytes=40 * MEBIBYTE) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    problem = training.service.refused(
        "chunks_missing",
        "PUT",
        routes.path(routes.MANIFEST, checkpoint=checkpoint, rank=0),
        content=manifest_of(chunk),
    )
    assert problem["chunks"] == [chunk.digest]
    assert training.info(checkpoint)["state"] == "open"
    assert training.latest_id() == before.id
    target = {"w": np.zeros(10, int)}
    before.load_into(target)
    np.testing.assert_array_equal(target["w"], np.arange(10))


def manifest_of(chunk: Payload) -> bytes:
    """What a rank would send that believes that all of the chunk is stored."""
    size = len(chunk.data)
    prints = tuple(fingerprint(chunk.data[start : start + SEGMENT_BYTES]) for start in range(0, size, SEGMENT_BYTES))
    segments = tuple(
        SegmentRef(chunk.ref, row * SEGMENT_BYTES, SEGMENT_BYTES, Codec.RAW, print_)
        for row, print_ in enumerate(prints)
    )
    region = Region.whole((size,))
    record = SliceRecord("w", "uint8", (size,), region, SliceKind.PARAMETER, False, segments, prints)
    manifest = build_manifest(rank=0, world_size=1, step=2, slices=[record], values=[], metrics={}, environment={})
    return encode_manifest(manifest)


TRAINER = """
import sys, time
import numpy as np
import shardkeep as sk
run = sk.connect(codec="raw").run("reports/throttled")
run.resume()
run.save(200, {"w": np.random.default_rng(2).integers(0, 256, 40 << 20, np.uint8)})
print("save returned", flush=True)
time.sleep(600)
"""


def test_E06_a_trainer_killed_two_seconds_after_save_returned_leaves_the_step_before(
    shared_service: ServiceProcess, client: sk.Client
) -> None:
    run = client.run("reports/throttled")
    old = np.random.default_rng(1).integers(0, 256, 3 << 20, np.uint8)
    before = run.save(100, {"w": old}).wait(60)

    def throttled(exchange: Exchange) -> Reply:
        time.sleep(len(exchange.body) / MEBIBYTE)
        return Reply()

    with FaultyProxy(shared_service.port) as proxy:
        proxy.fail(PUT_CHUNK, throttled, times=10**6)
        trainer = subprocess.Popen(
            [sys.executable, "-c", TRAINER],
            env={**shared_service.environment(), "SHARDKEEP_URL": proxy.url},
            stdout=subprocess.PIPE,
            cwd=Path.cwd(),
            text=True,
        )
        with trainer:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == "save returned\n"
            time.sleep(2)
            wait_until(lambda: proxy.count(PUT_CHUNK))
            trainer.send_signal(signal.SIGKILL)

    latest = run.latest()
    assert latest is not None
    assert latest.id == before.id
    assert [(passed.step, passed.state.value) for passed in run.passed_over()] == [(200, "open")]
    target = {"w": np.zeros(3 << 20, np.uint8)}
    latest.load_into(target)
    np.testing.assert_array_equal(target["w"], old)
    resumed = client.run("reports/throttled").resume()
    assert resumed is not None
    assert resumed.step == 100
