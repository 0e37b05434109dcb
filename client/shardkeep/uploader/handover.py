"""What ends the staging of a shard: all that its manifest holds besides the slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardkeep.format.manifest import build_manifest, encode_manifest
from shardkeep.format.segments import SliceRecord, ValueRecord
from shardkeep.uploader.save_identity import SaveIdentity


@dataclass(frozen=True, slots=True)
class Handover:
    """What `finish` brought."""

    values: Sequence[ValueRecord]
    metrics: Mapping[str, float]
    environment: Mapping[str, Any]

    def manifest(self, identity: SaveIdentity, slices: Sequence[SliceRecord]) -> bytes:
        """The encoded manifest."""
        return encode_manifest(
            build_manifest(
                rank=identity.rank,
                world_size=identity.world_size,
                step=identity.step,
                slices=slices,
                values=self.values,
                metrics=self.metrics,
                environment=self.environment,
            )
        )
