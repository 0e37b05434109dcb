"""Redaction: secrets are known by their shape, by their name and by their value; everything else stays readable."""

from __future__ import annotations

import json
import logging

import pytest
import structlog

from shardkeep_service.access.secrets import PREFIX, _check_characters, is_token_text, shown_part
from shardkeep_service.observability.logs import configure_logs
from shardkeep_service.observability.redaction import redact

_BODY = "Redaction" * 3
TOKEN = PREFIX + _BODY + _check_characters(_BODY)
"""Always the same: tests are named after it, and every process that runs a part of them must find the same names."""
assert is_token_text(TOKEN)
SIGNED = (
    "https://s3.example/bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAEXAMPLE%2F20261129%2Fus"
    "&X-Amz-Expires=900&X-Amz-Signature=5f2c0badf00d5f2c0badf00d&x-id=PutObject"
)


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        (f"Authorization: Bearer {TOKEN}", [TOKEN, TOKEN[len(shown_part(TOKEN)) :]]),
        (f"{{'authorization': b'bearer {TOKEN}'}}", [TOKEN]),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", ["dXNlcjpwYXNzd29yZA"]),
        (f"cookie: a=b; __Host-shardkeep={'Aa0_-' * 9}aaa; c=d", ["Aa0_-Aa0"]),
        (f"set-cookie: shardkeep_sign_in={'Aa0_-' * 9}aaa; Path=/", ["Aa0_-Aa0"]),
        (f"(b'x-shardkeep-csrf', b'{'0f' * 32}')", ["0f0f"]),
        (f"X-Shardkeep-Csrf: {'0f' * 32}", ["0f0f"]),
        (SIGNED, ["5f2c0badf00d", "AKIAEXAMPLE"]),
        (SIGNED.upper(), ["5F2C0BADF00D", "AKIAEXAMPLE"]),
        (SIGNED.replace("=", "%3D"), ["5f2c0badf00d"]),
        ("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/x, SignedHeaders=host, Signature=abcdef012345", ["AKIA", "abcdef01"]),
        ("x-amz-security-token: FwoGZXIvYXdzEEXAMPLE", ["FwoGZXIv"]),
        ("postgresql+psycopg://shardkeep:hunter22@db:5432/x", ["hunter22"]),
        ("could not connect to postgresql://u:p%40ss:w0rd@host/db?x=1", ["p%40ss", "w0rd"]),
        ("host=db password=hunter22 user=x", ["hunter22"]),
        ("host=db password = 'hunter 22' user=x", ["hunter 22"]),
    ],
)
def test_secrets_are_hidden_by_their_shape(text: str, secrets: list[str]) -> None:
    cleaned = redact(text)
    assert "[hidden]" in cleaned
    for secret in secrets:
        assert secret not in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "GET /v1/checkpoints/ckp_5de4e81260bdbc4b85b85fb98b3db5af/chunks/" + "0f" * 32,
        "http://127.0.0.1:8700/v1/projects?limit=2&cursor=WyJhYmMi",
        "basic sanity of the bearer",
        "set shardkeep_sign_in or __Host-shardkeep, and x-shardkeep-csrf beside it",
        "mail someone@example.org about shardkeep_service",
        f"token {shown_part(TOKEN)}... was revoked",
    ],
)
def test_everything_else_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_a_token_can_still_be_told_by_what_lists_show_of_it() -> None:
    assert shown_part(TOKEN) in redact(f"token={TOKEN}")


@pytest.fixture
def _logs_as_before() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_logs_as_before")
def test_logs_of_ours_and_of_libraries_hide_members_values_and_tracebacks(capfd: pytest.CaptureFixture[str]) -> None:
    value = 'a "quoted" secret'
    configure_logs("DEBUG", secrets=[value])
    ours = structlog.get_logger("test")
    ours.info("asked", authorization="anything", nested={"Password": "open sesame"}, note=f"with {value}")
    logging.getLogger("botocore.auth").debug("signed %s with %r", SIGNED, {"Authorization": f"Bearer {TOKEN}"})
    try:
        raise RuntimeError(f"connecting to postgresql://u:hunter22@db failed for {value}")
    except RuntimeError:
        ours.exception("failed")
    written = capfd.readouterr().err
    for secret in ("anything", "open sesame", "quoted", "5f2c0badf00d", TOKEN, "hunter22"):
        assert secret not in written, secret
    lines = [json.loads(line) for line in written.splitlines()]
    assert lines[0]["event"] == "asked"
    assert "RuntimeError" in lines[-1]["exception"]
