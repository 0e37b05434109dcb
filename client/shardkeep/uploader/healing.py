"""Sending chunks again that the service lost while the save goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from shardkeep.errors import SaveFailed
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.uploader.held_shard import HeldShard
from shardkeep.uploader.save_identity import SaveIdentity
from shardkeep.uploader.staged import StagedChunk, StagedSegment

_log = logging.getLogger("shardkeep")


def send_again(
    missing: Sequence[str],
    shard: HeldShard,
    identity: SaveIdentity,
    *,
    offer: Callable[[StagedChunk], None],
    repack: Callable[[Sequence[StagedSegment]], None],
) -> None:
    """Begin to send what the service lost; SaveFailed if its staged bytes are gone.

    `offer` gets chunks of this save, `repack` segments that were reused from an earlier one.
    """
    lost = set(missing)
    chunks, segments = shard.chunks_named(lost), shard.segments_reusing(lost)
    held = all(segment.is_held for segment in segments) and all(
        segment.is_held for chunk in chunks for segment, _ in chunk.packed.segments
    )
    if not held or not (chunks or segments):
        raise SaveFailed(
            f"step {identity.step} was not saved: the service lost chunks ({', '.join(missing[:3])}) whose "
            "staged bytes are gone; staging_bytes of the shard's size would have kept them",
            step=identity.step,
            code=ErrorCode.CHUNKS_MISSING,
            rank=identity.rank,
        )
    _log.warning("sending %d lost chunks of step %d again", len(lost), identity.step)
    for chunk in chunks:
        shard.chunk_begun_again(chunk)
        offer(chunk)
    repack(segments)
