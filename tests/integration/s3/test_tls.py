"""An endpoint whose certificate an own authority signed: trusted by the setting, refused with advice without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import urllib3

from shardkeep_service.blob_store.errors import BlobStoreRefused
from shardkeep_service.blob_store.s3.probe import probe
from tests.faulty_proxy import FaultyProxy
from tests.integration.s3.buckets import Buckets
from tests.servers import seaweedfs

pytestmark = pytest.mark.s3
CERTIFICATES: Final = Path(seaweedfs.__file__).parent / "certificates"
AUTHORITY: Final = CERTIFICATES / "authority.pem"


@pytest.fixture
def endpoint(buckets: Buckets) -> Iterator[FaultyProxy]:
    with FaultyProxy(buckets.server.port, certificate=CERTIFICATES / "server.pem") as proxy:
        yield proxy


def test_with_its_authority_the_endpoint_does_all_it_does_without_tls(buckets: Buckets, endpoint: FaultyProxy) -> None:
    report = probe(buckets.open(endpoint_url=endpoint.url, ca_bundle=AUTHORITY).connection)
    assert report.abilities == buckets.abilities


def test_without_its_authority_it_is_refused_and_the_setting_is_named(buckets: Buckets, endpoint: FaultyProxy) -> None:
    with pytest.raises(BlobStoreRefused, match="SHARDKEEP_SERVICE_S3_CA_BUNDLE"):
        buckets.open(endpoint_url=endpoint.url).store.size("a")
    assert endpoint.exchanges == []


def test_presigned_urls_speak_tls_too(buckets: Buckets, endpoint: FaultyProxy) -> None:
    parts = buckets.open(endpoint_url=endpoint.url, ca_bundle=AUTHORITY, prefix="tls")
    parts.store.put("a", memoryview(b"hello"))
    request = parts.presigner.get("a", lifetime_seconds=60)
    assert request.url.startswith("https://")
    with urllib3.PoolManager(ca_certs=str(AUTHORITY), retries=False) as pool:
        assert pool.request("GET", request.url).data == b"hello"
