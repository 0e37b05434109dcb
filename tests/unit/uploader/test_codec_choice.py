"""`auto` encodes where that is faster in all, and only then."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from shardkeep.format.codecs import Codec
from shardkeep.format.dtypes import dtype_named
from shardkeep.planning.packing import PackingGroup
from shardkeep.uploader import codec_choice
from shardkeep.uploader.codec_choice import (
    PROBE_CHUNK_BYTES,
    PROBE_CHUNKS,
    CodecChooser,
    EncodeSpeed,
    choose_codec,
)

FLOATS = (np.random.default_rng(0).standard_normal(1 << 18) * 0.02).astype(np.float32)
SAMPLE = FLOATS.view(np.uint8).data
FLOAT32 = dtype_named("float32")


def test_a_slow_link_is_worth_encoding_for_and_a_fast_one_is_not() -> None:
    speeds = {Codec.PLANES: EncodeSpeed(ratio=0.84, bytes_per_second=0.7e9)}
    assert choose_codec(speeds, 0.1e9, workers=2) is Codec.PLANES
    assert choose_codec(speeds, 3e9, workers=2) is Codec.RAW


def test_cores_are_not_spent_for_little() -> None:
    assert choose_codec({Codec.ZSTD: EncodeSpeed(ratio=0.98, bytes_per_second=0.3e9)}, 0.1e9, workers=2) is Codec.RAW
    assert choose_codec({Codec.PLANES: EncodeSpeed(ratio=0.84, bytes_per_second=0.5e9)}, 0.3e9, workers=2) is Codec.RAW


def test_a_named_codec_is_used_as_it_is() -> None:
    chooser = CodecChooser("zstd", workers=2)
    assert chooser.codec_for(FLOAT32, PackingGroup.PARAMETERS, SAMPLE) is Codec.ZSTD
    assert not chooser.wants_probe


def test_auto_sends_raw_until_the_probe_is_measured_and_keeps_its_choice() -> None:
    chooser = CodecChooser("auto", workers=2)
    assert chooser.wants_probe
    assert chooser.codec_for(FLOAT32, PackingGroup.PARAMETERS, SAMPLE) is Codec.RAW
    for _ in range(PROBE_CHUNKS):
        chooser.probe_sent()
    now = time.monotonic()
    size = PROBE_CHUNKS * PROBE_CHUNK_BYTES
    # So slow that encoding pays however busy this machine is.
    threading.Timer(0.05, chooser.upload_speed.sent, (size, now - 6_000, now)).start()
    assert chooser.codec_for(FLOAT32, PackingGroup.PARAMETERS, SAMPLE) is Codec.PLANES
    chooser.upload_speed.sent(1 << 40, now - 1, now)
    assert chooser.codec_for(FLOAT32, PackingGroup.PARAMETERS, SAMPLE) is Codec.PLANES
    assert chooser.upload_speed.bytes_per_second() == size / 6_000
    assert chooser.chosen[("float32", PackingGroup.PARAMETERS)] is Codec.PLANES


def test_a_probe_the_service_had_already_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_choice, "_PROBE_WAIT_SECONDS", 200.0)
    chooser = CodecChooser("auto", workers=2)
    for _ in range(PROBE_CHUNKS):
        chooser.probe_sent()
    chooser.upload_speed.nothing_to_send()
    started = time.monotonic()
    assert chooser.codec_for(FLOAT32, PackingGroup.PARAMETERS, SAMPLE) is Codec.RAW
    assert time.monotonic() - started < 100
