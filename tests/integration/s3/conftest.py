"""A bucket for each module of tests."""

from __future__ import annotations

import pytest

from tests.integration.s3.buckets import Buckets
from tests.servers.seaweedfs import S3Server


@pytest.fixture(scope="module")
def buckets(seaweedfs: S3Server) -> Buckets:
    return Buckets(seaweedfs)
