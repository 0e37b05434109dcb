"""Settings of the S3 store: read from the environment, checked at the start, silent about secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.settings import Settings

P = "SHARDKEEP_SERVICE_S3_"


def test_every_setting_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "BUCKET": "checkpoints",
        "PREFIX": "/teams/vision/",
        "ENDPOINT_URL": "http://seaweed:8333/",
        "PUBLIC_ENDPOINT_URL": "https://s3.example.com",
        "REGION": "eu-central-1",
        "ADDRESSING_STYLE": "virtual",
        "CA_BUNDLE": "/etc/ca.pem",
        "ACCESS_KEY_ID": "id",
        "SECRET_ACCESS_KEY": "hidden-secret",
        "SESSION_TOKEN": "hidden-token",
        "SSE": "aws:kms",
        "SSE_KMS_KEY_ID": "key-1",
        "EXPECTED_BUCKET_OWNER": "123456789012",
        "MAX_CONNECTIONS": "7",
    }
    for name, value in given.items():
        monkeypatch.setenv(P + name, value)
    s3 = Settings().s3
    assert (s3.bucket, s3.prefix, s3.endpoint_url) == ("checkpoints", "teams/vision/", "http://seaweed:8333")
    assert (s3.public_endpoint_url, s3.region, s3.ca_bundle) == (
        "https://s3.example.com",
        "eu-central-1",
        Path("/etc/ca.pem"),
    )
    assert (s3.sse, s3.sse_kms_key_id, s3.expected_bucket_owner) == ("aws:kms", "key-1", "123456789012")
    assert s3.max_connections == 7
    assert s3.virtual_hosts
    assert s3.secret_access_key is not None
    assert s3.secret_access_key.get_secret_value() == "hidden-secret"
    assert "hidden" not in repr(s3)


def test_without_a_bucket_there_is_no_s3_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(P + "BUCKET", "")
    assert Settings().s3.bucket is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("BUCKET", "UPPER"),
        ("BUCKET", "a/b"),
        ("BUCKET", "ab"),
        ("PREFIX", "../up"),
        ("PREFIX", "a b"),
        ("PREFIX", "x" * 201),
        ("ENDPOINT_URL", "seaweed:8333"),
        ("ENDPOINT_URL", "ftp://seaweed"),
        ("ENDPOINT_URL", "http://id:secret@seaweed"),
        ("ENDPOINT_URL", "http://seaweed?x=1"),
        ("ACCESS_KEY_ID", "alone"),
        ("SECRET_ACCESS_KEY", "alone"),
        ("SSE", "rot13"),
        ("SSE_KMS_KEY_ID", "without-sse"),
        ("PUBLIC_ENDPOINT_URL", "https://without-endpoint"),
        ("MAX_CONNECTIONS", "0"),
    ],
)
def test_settings_that_cannot_work_are_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(P + variable, value)
    with pytest.raises(ValidationError) as caught:
        S3Settings()
    assert "secret@" not in str(caught.value.errors(include_input=False))


@pytest.mark.parametrize(
    ("style", "endpoint", "bucket", "virtual"),
    [
        ("auto", None, "plain", True),
        ("auto", None, "with.dots", False),
        ("auto", "http://minio:9000", "plain", False),
        ("path", None, "plain", False),
        ("virtual", "http://minio:9000", "plain", True),
    ],
)
def test_auto_is_virtual_hosts_on_aws_and_paths_elsewhere(
    monkeypatch: pytest.MonkeyPatch, style: str, endpoint: str | None, bucket: str, virtual: bool
) -> None:
    monkeypatch.setenv(P + "ADDRESSING_STYLE", style)
    assert S3Settings(bucket=bucket, endpoint_url=endpoint).virtual_hosts is virtual
