"""zstd frames that declare their size: compressing with tuned parameters, and decompressing with bounded memory.

Contexts are kept per thread, because one context serves one thread at a time; each holds well under 1 MiB.
"""

from __future__ import annotations

import threading

import zstandard

from shardkeep.errors import IntegrityError
from shardkeep.format.buffers import Buffer

# Measured (measurements.md): the exponent plane of float weights goes to 0.34 at about 0.5 GB/s, and planes that do
# not shrink pass at 2-6 GB/s, so no sampling is needed before trying.
_TUNED = zstandard.ZstdCompressionParameters(
    compression_level=1, strategy=zstandard.STRATEGY_FAST, min_match=7, hash_log=6, window_log=17
)
_MAX_WINDOW_BYTES = 8 << 20

_contexts = threading.local()


def compress_tuned(data: Buffer) -> bytes:
    """One frame of `data`, by the parameters tuned for float planes."""
    compressor: zstandard.ZstdCompressor | None = getattr(_contexts, "tuned", None)
    if compressor is None:
        compressor = _contexts.tuned = zstandard.ZstdCompressor(compression_params=_TUNED)
    return compressor.compress(data)


def compress_level(data: Buffer, level: int) -> bytes:
    """One frame of `data`, at an ordinary zstd level; the window is at most 8 MiB."""
    parameters = zstandard.ZstdCompressionParameters.from_level(level, source_size=len(data))
    window_log = min(parameters.window_log, _MAX_WINDOW_BYTES.bit_length() - 1)
    bounded = zstandard.ZstdCompressionParameters.from_level(level, source_size=len(data), window_log=window_log)
    return zstandard.ZstdCompressor(compression_params=bounded).compress(data)


def decompress_exact(frame: Buffer, raw_bytes: int) -> bytes:
    """The `raw_bytes` bytes of exactly one frame; IntegrityError for anything else, before allocating more."""
    _check_frame(frame, raw_bytes)
    decompressor: zstandard.ZstdDecompressor | None = getattr(_contexts, "decompressor", None)
    if decompressor is None:
        decompressor = _contexts.decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    try:
        raw = decompressor.decompress(frame, max_output_size=raw_bytes, allow_extra_data=False)
    except zstandard.ZstdError as exc:
        raise IntegrityError(f"a zstd frame is damaged: {exc}") from exc
    if len(raw) != raw_bytes:
        raise IntegrityError(f"a zstd frame gave {len(raw)} bytes instead of {raw_bytes}")
    return raw


def _check_frame(frame: Buffer, raw_bytes: int) -> None:
    # The library allocates the size a frame declares, so an undeclared or different size is refused first.
    try:
        parameters = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as exc:
        raise IntegrityError(f"not a zstd frame: {exc}") from exc
    if parameters.content_size != raw_bytes:
        raise IntegrityError(f"a zstd frame declares {parameters.content_size} bytes instead of {raw_bytes}")
    if parameters.window_size > max(_MAX_WINDOW_BYTES, raw_bytes):
        raise IntegrityError(f"a zstd frame asks for a window of {parameters.window_size} bytes")
