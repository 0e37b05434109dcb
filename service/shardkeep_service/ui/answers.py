"""Answers with files: kinds, ETags, gzip, how long a browser may keep them, and what the page may do."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

from shardkeep_service.ui.files import StaticFile

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self';"
    " connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_FOR_GOOD: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"

NOT_BUILT: Final = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Shardkeep: the dashboard is not built</title>
<h1>The dashboard is not built</h1>
<p>This service runs from its source tree, in which the dashboard's files are made by <code>make dashboard</code>.
Run it, then load this page again. Packages and images hold the files already.</p>
</html>
"""


def page_headers() -> dict[str, str]:
    """What every answer under /ui carries: nothing from elsewhere, in nobody's frame."""
    return {**_PAGE_HEADERS, "content-type": "text/html; charset=utf-8"}


def file_answer(file: StaticFile, asked: Headers, *, lasting: bool) -> Response:
    """The file, its gzip form where that is taken, or 304. `lasting`: its name changes with its content."""
    zipped = file.zipped if _takes_gzip(asked.get("accept-encoding", "")) else None
    etag = f'"{file.digest}{"-gzip" if zipped is not None else ""}"'
    headers = {
        **_PAGE_HEADERS,
        "content-type": file.kind,
        "cache-control": _FOR_GOOD if lasting else _ASK_AGAIN,
        "etag": etag,
        "vary": "accept-encoding",
    }
    if etag in _tags(asked.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    if zipped is not None:
        headers["content-encoding"] = "gzip"
    return Response(file.content if zipped is None else zipped, headers=headers)


def _takes_gzip(accepted: str) -> bool:
    for item in accepted.lower().split(","):
        coding, _, parameter = item.partition(";")
        if coding.strip() == "gzip":
            return parameter.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}
