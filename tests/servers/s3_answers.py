"""Answers of S3 servers less good than the one at hand, given by a `FaultyProxy` in front of it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from tests.faulty_proxy import Action, Exchange, Reply
from tests.servers.seaweedfs import S3Server

FOREVER = 1_000_000


def s3_error(status: int, code: str, message: str = "", **headers: str) -> Reply:
    """An error document."""
    document = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"content-type": "application/xml", **named}, document.encode())


def slow_down(retry_after: str | None = None) -> Reply:
    """What a throttling store answers."""
    headers = {} if retry_after is None else {"retry_after": retry_after}
    return s3_error(503, "SlowDown", "Please reduce your request rate.", **headers)


def stored_whatever_it_says(server: S3Server) -> Action:
    """Stores the body of a PUT whatever its conditions, checksums and signature say. Use with `forwards=False`."""

    def store(exchange: Exchange) -> Reply:
        bucket, key = bucket_and_key(exchange)
        etag = server.client.put_object(Bucket=bucket, Key=key, Body=exchange.body)["ETag"]
        return Reply(200, {"etag": etag}, b"")

    return store


def bucket_and_key(exchange: Exchange) -> tuple[str, str]:
    """Of a path-style request."""
    bucket, _, key = unquote(urlsplit(exchange.path).path).lstrip("/").partition("/")
    return bucket, key
