"""What a presigned URL costs, ours and boto3's: `python -m bench.signing`."""

from __future__ import annotations

import time
from collections.abc import Callable

from pydantic import SecretStr

from shardkeep_service.blob_store.s3.opening import open_s3
from shardkeep_service.blob_store.s3.settings import S3Settings

URLS = 20_000
BOTO3_URLS = 1_000
KEY = "prj_0123456789abcdef/chunks/ab/ckp_0123456789abcdef/" + "0" * 64 + ".1"


def main() -> None:
    """Prints microseconds of CPU a URL."""
    settings = S3Settings(
        bucket="checkpoints",
        endpoint_url="https://s3.example.com",
        access_key_id="AKIAEXAMPLE",
        secret_access_key=SecretStr("secret"),
    )
    parts = open_s3(settings, storage_threads=1)
    presigner, client = parts.presigner, parts.connection.client
    parameters = {
        "Bucket": "checkpoints",
        "Key": KEY,
        "ContentLength": 32 << 20,
        "IfNoneMatch": "*",
        "ChecksumCRC64NVME": "AAAAAAAAAAE=",
    }
    rows = {
        "put": _microseconds(
            lambda: presigner.put(KEY, size_bytes=32 << 20, crc64=1, lifetime_seconds=900), count=URLS
        ),
        "get": _microseconds(lambda: presigner.get(KEY, lifetime_seconds=900), count=URLS),
        "boto3 put": _microseconds(
            lambda: client.generate_presigned_url("put_object", parameters, ExpiresIn=900), count=BOTO3_URLS
        ),
        "boto3 get": _microseconds(
            lambda: client.generate_presigned_url("get_object", {"Bucket": "checkpoints", "Key": KEY}, ExpiresIn=900),
            count=BOTO3_URLS,
        ),
    }
    print("CPU microseconds a presigned URL")
    for name, spent in rows.items():
        print(f"{name:10} {spent:8.1f}")
    print(f"{'ratio put':10} {rows['boto3 put'] / rows['put']:8.1f}")


def _microseconds(act: Callable[[], object], *, count: int) -> float:
    for _ in range(100):
        act()
    started = time.process_time()
    for _ in range(count):
        act()
    return (time.process_time() - started) / count * 1e6


if __name__ == "__main__":
    main()
