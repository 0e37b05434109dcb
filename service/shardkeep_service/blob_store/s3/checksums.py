"""Checksums as S3 sends them: base64 of the big-endian number."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from awscrt import checksums

from shardkeep_service.blob_store.presigner import Checksum

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import PutObjectRequestTypeDef


def crc64_of(body: memoryview) -> int:
    """CRC64NVME of the body."""
    return int(checksums.crc64nvme(body))


def crc64_text(crc64: int) -> str:
    """As in `x-amz-checksum-crc64nvme`."""
    return base64.b64encode(crc64.to_bytes(8, "big")).decode("ascii")


def crc32c_text(body: memoryview) -> str:
    """As in `x-amz-checksum-crc32c`."""
    return base64.b64encode(int(checksums.crc32c(body)).to_bytes(4, "big")).decode("ascii")


def checksum_parameters(checksum: Checksum | None, body: memoryview, crc64: int | None) -> PutObjectRequestTypeDef:
    """The parameters of a PutObject that make the store verify the body; `crc64` is used where it is known."""
    if checksum == "crc64nvme":
        return {"ChecksumCRC64NVME": crc64_text(crc64_of(body) if crc64 is None else crc64)}  # type: ignore[typeddict-item]
    if checksum == "crc32c":
        return {"ChecksumCRC32C": crc32c_text(body)}  # type: ignore[typeddict-item]
    return {}  # type: ignore[typeddict-item]
