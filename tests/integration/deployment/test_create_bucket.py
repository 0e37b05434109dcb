"""The one-shot of docker-compose.yml that makes the bucket, against a real S3 server."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from tests.servers.seaweedfs import S3Server

SCRIPT = Path(__file__).parents[3] / "deploy" / "create_bucket.py"


def create(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT], env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_bucket_is_made_once_and_found_the_second_time(seaweedfs: S3Server) -> None:
    bucket = f"shardkeep-compose-{secrets.token_hex(4)}"

    first, second = create(seaweedfs.environment(bucket)), create(seaweedfs.environment(bucket))

    assert (first.returncode, first.stdout) == (0, f"made bucket {bucket}\n"), first.stderr
    assert (second.returncode, second.stdout) == (0, f"bucket {bucket} is there\n"), second.stderr
    seaweedfs.client.delete_bucket(Bucket=bucket)


def test_a_refused_key_ends_it_with_the_reason_and_no_secret(seaweedfs: S3Server) -> None:
    wrong = {**seaweedfs.environment("shardkeep-compose"), "SHARDKEEP_SERVICE_S3_SECRET_ACCESS_KEY": "not-the-secret"}

    done = create(wrong)

    assert done.returncode == 1
    assert "bucket shardkeep-compose could not be made" in done.stderr
    assert "not-the-secret" not in done.stderr
