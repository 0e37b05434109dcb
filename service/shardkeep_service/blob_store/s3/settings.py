"""Settings of the S3 blob store, from the environment (SHARDKEEP_SERVICE_S3_...)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shardkeep_service.blob_store.keys import check_key

ENVIRONMENT_PREFIX: Final = "SHARDKEEP_SERVICE_S3_"
PREFIX_CHARACTERS_LIMIT: Final = 200
OBJECT_BYTES_LIMIT: Final = 5 << 30
"""The longest object that one PUT makes."""
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class S3Settings(BaseSettings):
    """Where objects are kept. Without a bucket there is no S3 store and the service keeps objects in its directory."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore", env_ignore_empty=True, hide_input_in_errors=True
    )

    bucket: str | None = None
    """It must exist: the service never makes one."""
    prefix: str = ""
    """Before every key; one catalogue owns it."""
    endpoint_url: str | None = None
    """None is AWS."""
    public_endpoint_url: str | None = None
    """Where clients reach the same bucket; None is `endpoint_url`."""
    region: str = "us-east-1"
    addressing_style: Literal["path", "virtual", "auto"] = "auto"
    """`auto` is virtual (the bucket in the host name) on AWS and path elsewhere."""
    ca_bundle: Path | None = None
    """A PEM file of the authorities that vouch for the endpoint; None is botocore's own (AWS_CA_BUNDLE included)."""
    access_key_id: str | None = None
    """None leaves the credentials to boto3: its environment, files, container and instance roles."""
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """Server-side encryption asked for with every PUT; None leaves it to the bucket."""
    sse_kms_key_id: str | None = None
    expected_bucket_owner: str | None = None
    """The account the bucket must belong to, sent with every request."""
    max_connections: Annotated[int, Field(ge=1)] | None = None
    """Kept open; None is two for each storage thread, since readers hold theirs while their clients take the bytes."""
    connect_timeout_seconds: Annotated[float, Field(gt=0)] = 5
    read_timeout_seconds: Annotated[float, Field(gt=0)] = 30
    """How long a connection may stand still."""
    retry_seconds: Annotated[float, Field(ge=0)] = 20
    """How long one operation may be tried again before the client is told to come back."""

    @field_validator("bucket")
    @classmethod
    def _check_bucket(cls, bucket: str | None) -> str | None:
        if bucket is not None and _BUCKET.fullmatch(bucket) is None:
            raise ValueError(f"not the name of a bucket: {bucket[:80]!r}; 3 to 63 of a-z, 0-9, dots and hyphens")
        return bucket

    @field_validator("prefix")
    @classmethod
    def _close_prefix(cls, prefix: str) -> str:
        stripped = prefix.strip("/")
        if not stripped:
            return ""
        check_key(stripped)
        if len(stripped) > PREFIX_CHARACTERS_LIMIT:
            raise ValueError(f"the prefix has more than {PREFIX_CHARACTERS_LIMIT} characters")
        return f"{stripped}/"

    @field_validator("endpoint_url", "public_endpoint_url")
    @classmethod
    def _check_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("an endpoint is http(s)://host[:port], without a query")
        if parts.username is not None or parts.password is not None:
            raise ValueError("credentials do not belong into the endpoint; set ACCESS_KEY_ID and SECRET_ACCESS_KEY")
        return url.rstrip("/")

    @model_validator(mode="after")
    def _check_pairs(self) -> S3Settings:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("ACCESS_KEY_ID and SECRET_ACCESS_KEY are set together or not at all")
        if self.sse_kms_key_id is not None and (self.sse is None or self.sse == "AES256"):
            raise ValueError("SSE_KMS_KEY_ID needs SSE=aws:kms")
        if self.public_endpoint_url is not None and self.endpoint_url is None:
            raise ValueError("PUBLIC_ENDPOINT_URL needs ENDPOINT_URL beside it")
        return self

    @property
    def virtual_hosts(self) -> bool:
        """Whether the bucket is named in the host."""
        if self.addressing_style == "auto":
            return self.endpoint_url is None and "." not in (self.bucket or "")
        return self.addressing_style == "virtual"
