"""Which codec a tensor gets: the one asked for, or for `auto` the one that brings bytes to the store soonest."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final, Literal

from shardkeep.format.codecs import Codec, encode_segment
from shardkeep.format.dtypes import DType
from shardkeep.planning.packing import PackingGroup

_NAMED: Final = {"raw": Codec.RAW, "zstd": Codec.ZSTD, "planes": Codec.PLANES}
PROBE_CHUNKS: Final = 4
"""Sent side by side: one alone would measure the latency of the store and not what it takes in."""
PROBE_CHUNK_BYTES: Final = 4 << 20
"""Of each chunk that `auto` sends raw to learn the speed of the upload before it chooses."""
_LEAST_SAMPLE_BYTES: Final = 256 << 10
_PROBE_WAIT_SECONDS: Final = 10.0
_SAVED_PER_CORE_SECOND: Final = 0.5
"""Encoding takes cores from training: a second of a core must save at least this much of the upload's time."""


@dataclass(frozen=True, slots=True)
class EncodeSpeed:
    """What a sample told: encoded bytes per raw byte, and raw bytes encoded per second by one thread."""

    ratio: float
    bytes_per_second: float


class UploadSpeed:
    """Bytes sent per second by all senders together, measured once, over the first chunks. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._started: float | None = None
        self._ended = 0.0
        self._settled = threading.Event()

    def sent(self, size_bytes: int, started: float, ended: float) -> None:
        """Count one chunk, sent between two readings of the monotonic clock."""
        with self._lock:
            if self._settled.is_set():
                return
            self._bytes += size_bytes
            self._started = started if self._started is None else min(self._started, started)
            self._ended = max(self._ended, ended)
            if self._bytes >= PROBE_CHUNKS * PROBE_CHUNK_BYTES:
                self._settled.set()

    def nothing_to_send(self) -> None:
        """The store had the probe already, or the save ended: nobody need wait for a measurement."""
        self._settled.set()

    def bytes_per_second(self, *, wait_seconds: float = 0.0) -> float | None:
        """None until enough was sent to tell."""
        self._settled.wait(wait_seconds)
        with self._lock:
            if self._started is None or self._bytes < PROBE_CHUNK_BYTES:
                return None
            return self._bytes / max(self._ended - self._started, 1e-6)


def choose_codec(speeds: dict[Codec, EncodeSpeed], upload_bytes_per_second: float, *, workers: int) -> Codec:
    """The codec with the least time per raw byte, encoding while sending; raw unless it is worth its cores."""
    best, best_seconds = Codec.RAW, 1.0 / upload_bytes_per_second
    for codec, speed in speeds.items():
        encode_seconds = 1.0 / speed.bytes_per_second
        send_seconds = speed.ratio / upload_bytes_per_second
        saved_seconds = (1.0 - speed.ratio) / upload_bytes_per_second
        seconds = max(encode_seconds / workers, send_seconds)
        if seconds < best_seconds and saved_seconds >= _SAVED_PER_CORE_SECOND * encode_seconds:
            best, best_seconds = codec, seconds
    return best


class CodecChooser:
    """The choices of one attempt, by dtype and packing group. Thread-safe.

    With `auto` the first bytes of an attempt go raw; when they are sent, the upload's speed is known.
    """

    def __init__(self, codec: Literal["auto", "raw", "zstd", "planes"], *, workers: int) -> None:
        self._fixed = _NAMED.get(codec)
        self._workers = workers
        self._lock = threading.Lock()
        self._chosen: dict[tuple[str, PackingGroup], Codec] = {}
        self._probes = 0
        self.upload_speed = UploadSpeed()

    @property
    def wants_probe(self) -> bool:
        """Whether the first bytes should be sent at once, since choices wait for them."""
        return self._fixed is None and self._probes < PROBE_CHUNKS

    def probe_sent(self) -> None:
        """One of the first chunks is on its way; once all are, choices wait for their speed."""
        self._probes += 1

    @property
    def chosen(self) -> dict[tuple[str, PackingGroup], Codec]:
        """What `auto` has settled on so far."""
        with self._lock:
            return dict(self._chosen)

    def codec_for(self, dtype: DType, group: PackingGroup, sample: memoryview) -> Codec:
        """The codec for segments of this class, of which `sample` is one; may wait for the first upload."""
        if self._fixed is not None:
            return self._fixed
        key = (dtype.name, group)
        with self._lock:
            if key in self._chosen:
                return self._chosen[key]
        if self._probes < PROBE_CHUNKS:
            return Codec.RAW
        upload = self.upload_speed.bytes_per_second(wait_seconds=_PROBE_WAIT_SECONDS)
        if upload is None or sample.nbytes < _LEAST_SAMPLE_BYTES:
            return Codec.RAW
        codec = choose_codec(measure(dtype, sample), upload, workers=self._workers)
        with self._lock:
            return self._chosen.setdefault(key, codec)


def measure(dtype: DType, sample: memoryview) -> dict[Codec, EncodeSpeed]:
    """Encode a sample with each codec that could pay."""
    codec = Codec.PLANES if dtype.float_planes > 1 else Codec.ZSTD
    started = time.perf_counter()
    encoded_bytes = len(encode_segment(codec, sample, dtype.item_bytes).data)
    seconds = max(time.perf_counter() - started, 1e-9)
    return {codec: EncodeSpeed(encoded_bytes / sample.nbytes, sample.nbytes / seconds)}
