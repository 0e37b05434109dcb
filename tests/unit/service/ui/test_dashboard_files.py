"""The dashboard's files over HTTP: what is served for which path, with which headers, and what never is."""

from __future__ import annotations

import gzip
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shardkeep.protocol import routes
from shardkeep_service.ui.files import DashboardFiles
from tests.unit.service.local_service import LocalAnswer, LocalService

INDEX = b"<!doctype html><title>Shardkeep</title>" + b"<p>the page</p>" * 100
SCRIPT = b"export const answer = 42\n" * 100
SECRET = b"not of the dashboard"
OF_ONE_REQUEST = frozenset({"date", routes.REQUEST_ID_HEADER, routes.TRACE_HEADER})


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder as the build leaves it, beside what nobody may get at."""
    folder = tmp_path / "package" / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(INDEX)
    (folder / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (folder / "assets" / "icon-abc.svg").write_bytes(b"<svg/>")
    (folder / "robots.txt").write_bytes(b"Disallow: /\n")
    (folder.parent / "settings.py").write_bytes(SECRET)
    (tmp_path / "secret.txt").write_bytes(SECRET)
    return folder


@pytest.fixture
def served(local: LocalService, built: Path) -> LocalService:
    local.app.state.dashboard_files = DashboardFiles(built)
    return local


@pytest.fixture
def unbuilt(local: LocalService, tmp_path: Path) -> LocalService:
    local.app.state.dashboard_files = DashboardFiles(tmp_path / "nothing")
    return local


def ask(service: LocalService, method: str, path: str, **headers: str) -> LocalAnswer:
    """As a browser asks: without a token."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = service._pool.request(
        method, service._url + path, headers=given, redirect=False, timeout=60, decode_content=False
    )
    return LocalAnswer(answer.status, answer.data, answer.headers)


def get(service: LocalService, path: str, **headers: str) -> LocalAnswer:
    return ask(service, "GET", path, **headers)


def lasting_headers(answer: LocalAnswer) -> dict[str, str]:
    """Those that do not differ from request to request."""
    return {name.lower(): value for name, value in answer.headers.items() if name.lower() not in OF_ONE_REQUEST}


def raw(service: LocalService, target: bytes) -> bytes:
    """The answer to a request target that no client library would send as it is."""
    address = urlsplit(service._url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(b"GET " + target + b" HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_index_page_and_its_files_need_no_token(served: LocalService) -> None:
    assert get(served, "/ui/").content == INDEX
    assert get(served, "/ui/index.html").content == INDEX
    assert get(served, "/ui/assets/index-abc.js").content == SCRIPT
    assert get(served, "/ui/robots.txt").content == b"Disallow: /\n"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/runs",
        "/ui/runs/",
        "/ui/runs/vision/resnet-1.5",
        "/ui/runs/vision/weights.js",
        "/ui/checkpoints/ckp_0/differences/ckp_1",
        "/ui/runs?search=%3Cscript%3E&cursor=a.b",
    ],
)
def test_the_address_of_a_page_has_the_index_page(served: LocalService, path: str) -> None:
    answer = get(served, path)
    assert (answer.status, answer.content) == (200, INDEX)
    assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("path", ["/ui/assets/gone-abc.js", "/ui/assets/", "/ui/assets", "/ui/favicon.ico", "/uix"])
def test_a_file_that_is_not_there_is_a_problem_document_and_no_page(served: LocalService, path: str) -> None:
    answer = get(served, path)
    assert (answer.status, answer.json()["code"]) == (404, "no_such_route")
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "target",
    [
        b"/ui/../secret.txt",
        b"/ui/../../secret.txt",
        b"/ui/..%2f..%2fsecret.txt",
        b"/ui/%2e%2e/settings.py",
        b"/ui/%2e%2e%2fsettings.py",
        b"/ui/%252e%252e/settings.py",
        b"/ui/assets/../../settings.py",
        b"/ui/assets/..%5c..%5csettings.py",
        b"/ui/..\\settings.py",
        b"/ui//etc/passwd",
        b"/ui/%2fetc/passwd",
        b"/ui/file:///etc/passwd",
        b"/ui/settings.py%00.html",
        b"/ui/index.html%00",
        b"/ui/%00",
        b"/ui/./settings.py",
        b"/ui/C:/settings.py",
        b"/ui/%c0%ae%c0%ae/settings.py",
        b"/ui/%ff",
        b"/ui/assets/%0d%0aset-cookie:%20a=b",
        b"/ui/" + b"a/" * 2000,
    ],
)
def test_no_path_leads_out_of_the_folder(served: LocalService, target: bytes) -> None:
    answer = raw(served, target)
    status = int(answer.split(b" ", 2)[1])
    assert SECRET not in answer
    assert b"root:" not in answer
    assert b"set-cookie" not in answer.partition(b"\r\n\r\n")[0].lower()
    assert status in (200, 400, 404)
    if status == 200:
        assert INDEX in answer, "a file was found by a path that names none"


@pytest.mark.parametrize(
    "target", [b"/ui/../secret.txt", b"/ui/%00", b"/ui/a%5cb", b"/ui//x", b"/ui/%2e%2e/settings.py"]
)
def test_a_path_that_is_no_address_of_a_page_is_refused(served: LocalService, target: bytes) -> None:
    assert raw(served, target).startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))


def test_nothing_that_is_put_there_later_or_linked_from_there_is_read_by_a_request(
    served: LocalService, built: Path
) -> None:
    get(served, "/ui/")
    (built / "late.txt").write_bytes(SECRET)
    assert get(served, "/ui/late.txt").status == 404


@pytest.mark.parametrize("path", ["/ui/", "/ui/runs/a/b", "/ui/assets/index-abc.js", "/ui", "/"])
def test_every_answer_forbids_frames_and_anything_from_elsewhere(served: LocalService, path: str) -> None:
    headers = get(served, path, accept="text/html").headers
    policy = {rule.partition(" ")[0]: rule.partition(" ")[2] for rule in headers["content-security-policy"].split("; ")}
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert len(headers.getlist("content-security-policy")) == 1


def test_kinds_are_named_so_that_nothing_is_guessed(served: LocalService) -> None:
    kinds = {path: get(served, f"/ui/{path}").headers["content-type"] for path in ("", "assets/index-abc.js")}
    assert kinds == {"": "text/html; charset=utf-8", "assets/index-abc.js": "text/javascript; charset=utf-8"}
    assert get(served, "/ui/assets/icon-abc.svg").headers["content-type"] == "image/svg+xml"


def test_hashed_files_are_kept_for_good_and_pages_asked_for_again(served: LocalService) -> None:
    assert "immutable" in get(served, "/ui/assets/index-abc.js").headers["cache-control"]
    assert get(served, "/ui/").headers["cache-control"] == "no-cache"
    assert get(served, "/ui/robots.txt").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_what_a_browser_has_already_is_not_sent_again(served: LocalService, encoding: str) -> None:
    first = get(served, "/ui/", accept_encoding=encoding)
    etag = first.headers["etag"]
    for given in (etag, f"W/{etag}", f'"other", {etag}'):
        again = get(served, "/ui/", accept_encoding=encoding, if_none_match=given)
        assert (again.status, again.content) == (304, b"")
        assert again.headers["etag"] == etag
        assert "content-security-policy" in again.headers
    assert get(served, "/ui/", accept_encoding=encoding, if_none_match='"other"').status == 200


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("GZIP", True), ("", False), ("br", False), ("gzip;q=0", False)],
)
def test_text_is_sent_zipped_to_whoever_takes_it(served: LocalService, accepted: str, zipped: bool) -> None:
    answer = get(served, "/ui/assets/index-abc.js", accept_encoding=accepted)
    assert answer.headers.get("content-encoding") == ("gzip" if zipped else None)
    assert (gzip.decompress(answer.content) if zipped else answer.content) == SCRIPT
    assert answer.headers["vary"] == "accept-encoding"


def test_the_two_forms_of_a_file_have_tags_of_their_own(served: LocalService) -> None:
    tags = {get(served, "/ui/", accept_encoding=encoding).headers["etag"] for encoding in ("gzip", "identity")}
    assert len(tags) == 2


def test_browsers_are_sent_to_the_dashboard_and_others_told_where_the_api_is(served: LocalService) -> None:
    for path in ("/", "/ui"):
        answer = get(served, path, accept="text/html,application/xhtml+xml")
        assert (answer.status, answer.headers["location"]) == (307, "/ui/")
    assert get(served, "/", accept="*/*").json()["code"] == "no_such_route"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 307),
        ("/ui", 307),
        ("/ui/", 200),
        ("/ui/runs", 200),
        ("/ui/assets/index-abc.js", 200),
        ("/ui/assets/gone-abc.js", 404),
        ("/livez", 200),
        ("/readyz", 200),
    ],
)
def test_head_is_answered_as_get_is_but_for_the_body(served: LocalService, path: str, status: int) -> None:
    whole, head = (ask(served, method, path, accept="text/html") for method in ("GET", "HEAD"))
    assert (whole.status, head.status, head.content) == (status, status, b"")
    assert lasting_headers(head) == lasting_headers(whole)
    assert int(head.headers["content-length"]) == len(whole.content)


def test_head_is_told_what_a_browser_has_already(served: LocalService) -> None:
    etag = ask(served, "HEAD", "/ui/").headers["etag"]
    again = ask(served, "HEAD", "/ui/", if_none_match=etag)
    assert (again.status, again.content, again.headers["etag"]) == (304, b"", etag)


@pytest.mark.parametrize("path", ["/ui/", "/ui/runs", "/ui/assets/index-abc.js"])
def test_without_built_files_the_page_names_the_command(unbuilt: LocalService, path: str) -> None:
    answer = get(unbuilt, path)
    assert answer.status == 503
    assert b"make dashboard" in answer.content
    assert b"<script" not in answer.content
    assert b"style" not in answer.content
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_files_that_are_built_while_the_service_runs_are_found(unbuilt: LocalService, built: Path) -> None:
    files = unbuilt.app.state.dashboard_files
    assert get(unbuilt, "/ui/").status == 503
    built.rename(files._folder)
    assert get(unbuilt, "/ui/").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_files_are_read_only(served: LocalService, method: str) -> None:
    served.refused("method_not_allowed", method, "/ui/")
    served.refused("method_not_allowed", method, "/ui/assets/index-abc.js")


def test_a_service_without_the_dashboard_serves_none_of_it(tmp_path: Path) -> None:
    with LocalService(tmp_path / "plain", ui_enabled=False) as service:
        for path in ("/", "/ui", "/ui/", "/ui/index.html"):
            service.refused("no_such_route", "GET", path)
