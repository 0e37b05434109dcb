"""The probe finds out what a store really does, and says what does not work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.findings import Finding, Level
from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.s3.probe import ProbeReport, probe
from tests.faulty_proxy import Exchange, FaultyProxy, Reply
from tests.integration.s3.buckets import Buckets
from tests.servers.s3_answers import FOREVER, s3_error, slow_down, stored_whatever_it_says

pytestmark = pytest.mark.s3


@pytest.fixture
def proxy(buckets: Buckets) -> Iterator[FaultyProxy]:
    with FaultyProxy(buckets.server.port) as running:
        yield running


@pytest.fixture
def probed(buckets: Buckets, proxy: FaultyProxy) -> Callable[[], ProbeReport]:
    return lambda: probe(buckets.open(endpoint_url=proxy.url).connection)


def finding(report: ProbeReport, name: str) -> Finding:
    return next(item for item in report.findings if item.name == name)


def known(report: ProbeReport) -> StoreAbilities:
    assert report.abilities is not None, report.findings[-1]
    return report.abilities


def levels(report: ProbeReport, level: Level) -> set[str]:
    return {item.name for item in report.findings if item.level is level}


def test_seaweedfs_does_all_that_is_asked_of_a_store_and_nothing_of_the_probe_stays(buckets: Buckets) -> None:
    report = probe(buckets.open(prefix="kept").connection)
    assert levels(report, Level.WARN) | levels(report, Level.FAIL) == set()
    assert report.abilities == StoreAbilities(
        checksum="crc64nvme",
        presigned_checksum_enforced=True,
        create_only=True,
        presigned_create_only=True,
        versioned=False,
    )
    assert not [key for key in buckets.objects() if key.startswith("kept/")]


def test_E145_a_store_that_refuses_chunked_trailers_as_unauthorised_is_sent_none(
    probed: Callable[[], ProbeReport], proxy: FaultyProxy
) -> None:
    def refuse_trailers(exchange: Exchange) -> Reply:
        chunked = "aws-chunked" in exchange.headers.get("content-encoding", "") or "x-amz-trailer" in exchange.headers
        return s3_error(401, "Unauthorized") if chunked else Reply()

    proxy.fail(".", refuse_trailers, times=FOREVER)
    report = probed()
    assert levels(report, Level.FAIL) == set()
    assert known(report).checksum == "crc64nvme"
    assert all(
        "STREAMING" not in exchange.headers.get("x-amz-content-sha256", "")
        and "chunked" not in exchange.headers.get("transfer-encoding", "")
        for exchange in proxy.exchanges
    )


@pytest.mark.parametrize(
    ("pattern", "failing"),
    [
        ("^PUT ", "put"),
        ("^HEAD .*/probe/", "head"),
        ("^GET .*/probe/", "get"),
        (r"^GET .*list-type=2", "list"),
        (r"^POST .*\?delete", "delete"),
    ],
)
def test_E145_the_feature_that_a_store_refuses_is_named(
    probed: Callable[[], ProbeReport], proxy: FaultyProxy, pattern: str, failing: str
) -> None:
    proxy.fail(pattern, s3_error(401, "Unauthorized"), times=FOREVER, forwards=False)
    assert levels(probed(), Level.FAIL) == {failing}
    proxy.fail(pattern, Reply(), times=FOREVER)


def test_a_store_that_ignores_ranges_cannot_be_used(probed: Callable[[], ProbeReport], proxy: FaultyProxy) -> None:
    def whole(exchange: Exchange) -> Reply:
        ranged = exchange.headers.get("range") == "bytes=100-149"
        return Reply(200, {"etag": '"x"'}, bytes(4096)) if ranged else Reply()

    proxy.fail("^GET ", whole, times=FOREVER)
    with pytest.raises(BlobStoreUnavailable, match="asked for bytes=100-149"):
        probed()


def test_E211_a_store_that_ignores_conditions_is_found_out(
    probed: Callable[[], ProbeReport], proxy: FaultyProxy, buckets: Buckets
) -> None:
    proxy.fail("^PUT ", stored_whatever_it_says(buckets.server), times=FOREVER, forwards=False)
    report = probed()
    assert not known(report).create_only
    assert not known(report).presigned_create_only
    assert finding(report, "create_only").level is Level.WARN
    assert "replaces an object" in finding(report, "create_only").detail
    assert "database" in finding(report, "create_only").advice


def test_checksums_that_a_store_does_not_verify_are_not_counted_on(
    probed: Callable[[], ProbeReport], proxy: FaultyProxy, buckets: Buckets
) -> None:
    proxy.fail("^PUT ", stored_whatever_it_says(buckets.server), times=FOREVER, forwards=False)
    report = probed()
    assert known(report).checksum is None
    assert not known(report).presigned_checksum_enforced
    assert levels(report, Level.WARN) >= {"checksum", "presigned"}
    assert "streamed through the service" in finding(report, "presigned").advice


def test_crc32c_is_used_where_crc64nvme_is_not_known(
    probed: Callable[[], ProbeReport], proxy: FaultyProxy, buckets: Buckets
) -> None:
    store = stored_whatever_it_says(buckets.server)
    proxy.fail(
        "^PUT ",
        lambda exchange: store(exchange) if "x-amz-checksum-crc64nvme" in exchange.headers else Reply(),
        times=FOREVER,
    )
    report = probed()
    assert known(report).checksum == "crc32c"
    assert not known(report).presigned_checksum_enforced


def test_a_store_that_loses_races_of_conditional_puts_is_not_create_only(
    probed: Callable[[], ProbeReport], proxy: FaultyProxy
) -> None:
    put: list[str] = []

    def lose_races(exchange: Exchange) -> Reply:
        """Right for two PUTs of one key; a third one, which only a race sends, is told that it won."""
        put.append(exchange.path)
        return Reply(200, {"etag": '"x"'}, b"") if put.count(exchange.path) == 3 else Reply()

    proxy.fail("^PUT [^?]*$", lose_races, times=FOREVER)
    report = probed()
    assert not known(report).create_only
    assert "won" in finding(report, "create_only").detail


def test_a_clock_that_is_wrong_is_said_and_requests_follow_the_stores(buckets: Buckets, proxy: FaultyProxy) -> None:
    ahead = format_datetime(datetime.now(UTC) + timedelta(minutes=20), usegmt=True)
    proxy.fail("^GET ", lambda exchange: Reply(headers={**exchange.answer_headers, "date": ahead}), times=FOREVER)
    parts = buckets.open(endpoint_url=proxy.url)
    report = probe(parts.connection)
    assert finding(report, "clock").level is Level.WARN
    assert "-1200 s off" in re.sub(r"-(11[6-9]|120)\d ", "-1200 ", finding(report, "clock").detail)
    assert parts.connection.clock.correction_seconds == pytest.approx(1200, abs=30)


def test_a_bucket_that_does_not_exist_is_named_and_never_made(buckets: Buckets) -> None:
    before = {bucket["Name"] for bucket in buckets.server.client.list_buckets()["Buckets"]}
    report = probe(buckets.open(bucket="nobody-made-this").connection)
    assert [item.level for item in report.findings] == [Level.FAIL]
    assert "nobody-made-this" in report.findings[0].detail
    assert {bucket["Name"] for bucket in buckets.server.client.list_buckets()["Buckets"]} == before


def test_wrong_credentials_are_named(buckets: Buckets) -> None:
    report = probe(buckets.open(secret_access_key=SecretStr("wrong")).connection)
    assert [(item.name, item.level) for item in report.findings] == [("bucket", Level.FAIL)]
    assert "credentials" in report.findings[0].detail
    assert "wrong" not in report.findings[0].detail


def test_a_store_that_does_not_answer_is_probed_again_at_the_next_call(buckets: Buckets, proxy: FaultyProxy) -> None:
    parts = buckets.open(endpoint_url=proxy.url)
    proxy.fail("^PUT ", slow_down(), times=1, forwards=False)
    with pytest.raises(BlobStoreUnavailable):
        parts.abilities()
    assert parts.abilities().create_only
    asked = len(proxy.exchanges)
    assert parts.abilities().create_only
    assert len(proxy.exchanges) == asked


def test_what_is_missing_is_logged_with_what_to_do(buckets: Buckets, proxy: FaultyProxy) -> None:
    proxy.fail("^PUT ", stored_whatever_it_says(buckets.server), times=FOREVER, forwards=False)
    with capture_logs() as lines:
        buckets.open(endpoint_url=proxy.url).abilities()
    warned = {line["ability"]: line["advice"] for line in lines if line["log_level"] == "warning"}
    assert warned.keys() >= {"checksum", "create_only", "presigned"}
    assert all(warned.values())
