"""Manifests: what one rank saved. The parts live in `manifest_columns`, `_building`, `_checks` and `_encoding`."""

from shardkeep.format.manifest_building import build_manifest
from shardkeep.format.manifest_columns import EnvironmentValue, Manifest, SliceColumns
from shardkeep.format.manifest_encoding import (
    MAX_MANIFEST_RAW_BYTES,
    decode_manifest,
    decode_manifest_values,
    encode_manifest,
)

__all__ = [
    "MAX_MANIFEST_RAW_BYTES",
    "EnvironmentValue",
    "Manifest",
    "SliceColumns",
    "build_manifest",
    "decode_manifest",
    "decode_manifest_values",
    "encode_manifest",
]
