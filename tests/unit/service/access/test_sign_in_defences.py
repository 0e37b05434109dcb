"""What other pages can make a browser send counts for nothing: forms, other origins, names made to resolve here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from shardkeep.protocol import routes
from shardkeep_service.access.browser_cookie import PLAIN_NAME, SECURE_NAME
from shardkeep_service.access.scopes import Scope
from shardkeep_service.body_limits import SIGN_IN_BYTES
from tests.unit.service.access.browsers import Browser, signed_in
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.databases import POSTGRESQL
from tests.unit.service.local_service import LocalService

ELSEWHERE = "https://elsewhere.example"
UNSAFE = [
    ("POST", routes.PROJECTS),
    ("PUT", "/v1/projects/made/quota"),
    ("PUT", "/v1/projects/made/runs/run"),
    ("DELETE", "/v1/tokens/tok_x"),
    ("DELETE", routes.SIGN_IN),
]


@pytest.fixture
def admin(local: LocalService) -> Holder:
    return first_admin(local)


@pytest.fixture
def browser(local: LocalService, admin: Holder) -> Browser:
    return signed_in(local, admin.token)


def projects(admin: Holder) -> list[str]:
    return [project["name"] for project in admin.ask("GET", routes.PROJECTS)["items"]]


@pytest.mark.parametrize(("method", "path"), UNSAFE, ids=[f"{method} {path}" for method, path in UNSAFE])
@pytest.mark.parametrize("csrf", [None, "", "wrong", "é"], ids=["none", "empty", "wrong", "not ascii"])
def test_a_request_that_may_change_something_needs_the_csrf_word(
    browser: Browser, admin: Holder, method: str, path: str, csrf: str | None
) -> None:
    body = {"name": "made"} if method == "POST" else None
    browser.refused("csrf_missing", method, path, body, headers={routes.CSRF_HEADER: csrf})
    assert projects(admin) == []
    assert browser.send("GET", routes.SIGN_IN).status == 200


def test_the_csrf_word_of_another_sign_in_is_wrong(browser: Browser, local: LocalService, admin: Holder) -> None:
    other = signed_in(local, admin.token)
    browser.refused("csrf_missing", "POST", routes.PROJECTS, {"name": "made"}, headers={routes.CSRF_HEADER: other.csrf})


@pytest.mark.parametrize(
    "origin",
    [
        ELSEWHERE,
        "null",
        "",
        "http://127.0.0.1:1",
        "https://127.0.0.1",
        "http://localhost",
        "http://127.0.0.1.elsewhere.example",
        "http://127.0.0.1@elsewhere.example",
        "file://",
        "chrome-extension://abcdef",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_of_another_origin_is_refused(browser: Browser, admin: Holder, method: str, origin: str) -> None:
    body = {"name": "made"} if method == "POST" else None
    browser.refused("origin_refused", method, routes.PROJECTS, body, headers={"origin": origin})
    assert projects(admin) == []


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "nonsense"])
def test_a_change_that_the_browser_says_another_site_began_is_refused(browser: Browser, site: str) -> None:
    headers: dict[str, str | None] = {"sec-fetch-site": site, "origin": None}
    browser.refused("origin_refused", "POST", routes.PROJECTS, {"name": "made"}, headers=headers)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_reading_for_another_site_is_refused_and_for_a_typed_address_allowed(browser: Browser, site: str) -> None:
    browser.refused("origin_refused", "GET", routes.PROJECTS, headers={"sec-fetch-site": site})
    for own in ("none", "same-origin", None):
        assert browser.send("GET", routes.PROJECTS, headers={"sec-fetch-site": own}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "elsewhere.example",
        "elsewhere.example:8700",
        "127.0.0.1.nip.example",
        "localhost.elsewhere.example",
        "10.0.0.7:8700",
        "[::ffff:127.0.0.1]",
        "127.0.0.1:port",
        "127.0.0.1/",
        "user@127.0.0.1",
        "",
    ],
)
def test_a_name_that_was_made_to_resolve_here_is_refused(browser: Browser, admin: Holder, host: str) -> None:
    """DNS rebinding: then the page's own origin is that name."""
    rebound: dict[str, str | None] = {"host": host, "origin": f"http://{host}"}
    secret = dict(browser.cookies)[PLAIN_NAME]
    for method, path in (("GET", routes.PROJECTS), ("POST", routes.PROJECTS)):
        body = {"name": "made"} if method == "POST" else None
        headers = {**rebound, "cookie": f"{SECURE_NAME}={secret}; {PLAIN_NAME}={secret}"}
        browser.refused("origin_refused", method, path, body, headers=headers)
    Browser(browser.service).refused("origin_refused", "POST", routes.SIGN_IN, {"token": admin.token}, headers=rebound)
    assert projects(admin) == []


def test_where_both_cookies_come_the_one_that_nobody_can_plant_counts(
    browser: Browser, admin: Holder, local: LocalService
) -> None:
    """Over TLS at a name of this machine; somebody on the way, or at another port, has planted their own sign-in."""
    (mine,) = browser.cookies.values()
    stranger = signed_in(local, admin.make("read").token)
    (planted,) = stranger.cookies.values()
    for pairs in (
        [f"{PLAIN_NAME}={planted}", f"{SECURE_NAME}={mine}"],
        [f"{SECURE_NAME}={mine}", f"{PLAIN_NAME}={planted}"],
    ):
        answer = browser.ask("GET", routes.SIGN_IN, headers={"cookie": "; ".join(pairs)})
        assert answer["token"]["id"] == admin.info["id"]


def test_signing_in_and_out_for_another_origin_is_refused(browser: Browser, admin: Holder) -> None:
    for headers in ({"origin": ELSEWHERE}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
        answer = browser.send("POST", routes.SIGN_IN, {"token": admin.token}, headers=dict(headers))
        assert answer.json()["code"] == "origin_refused"
        assert "set-cookie" not in answer.headers
        browser.refused("origin_refused", "DELETE", routes.SIGN_IN, headers=dict(headers))
    assert browser.send("GET", routes.SIGN_IN).status == 200


FORMS = {
    "text/plain": b'{"name": "made"}',
    "application/x-www-form-urlencoded": urlencode({"name": "made"}).encode(),
    "multipart/form-data; boundary=x": b'--x\r\ncontent-disposition: form-data; name="name"\r\n\r\nmade\r\n--x--\r\n',
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_of_another_page_changes_nothing_and_signs_nobody_in(
    browser: Browser, admin: Holder, local: LocalService, kind: str
) -> None:
    """What a page can send without asking first. Older browsers say no more about where it comes from."""
    silent: dict[str, str | None] = {"content-type": kind, "origin": None, "sec-fetch-site": None}
    form = {**silent, routes.CSRF_HEADER: None}
    browser.refused("csrf_missing", "POST", routes.PROJECTS, content=FORMS[kind], headers=form)
    browser.refused("origin_refused", "POST", routes.PROJECTS, content=FORMS[kind], headers={**form, "origin": "null"})
    own = browser.send("POST", routes.PROJECTS, content=FORMS[kind], headers=silent)
    assert own.json()["code"] == "malformed_request"
    token = FORMS[kind].replace(b"name", b"token").replace(b"made", admin.token.encode())
    stranger = Browser(local)
    stranger.refused("malformed_request", "POST", routes.SIGN_IN, content=token, headers=silent)
    assert stranger.cookies == {}
    assert projects(admin) == []


def test_no_answer_lets_another_origin_ask_or_read(browser: Browser) -> None:
    asked = {"origin": ELSEWHERE, "access-control-request-method": "POST", "access-control-request-headers": "x"}
    for method, headers, status in (("OPTIONS", asked, 405), ("GET", {"origin": ELSEWHERE}, 403), ("GET", {}, 200)):
        answer = browser.send(method, routes.PROJECTS, headers=dict(headers))
        assert answer.status == status
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]


def test_answers_of_the_api_are_no_pages_in_no_frame_and_not_kept(browser: Browser) -> None:
    for path in (routes.PROJECTS, "/v1/nothing", routes.LIVEZ, routes.SIGN_IN):
        headers = browser.send("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["cache-control"] == "no-store"


def test_a_body_that_is_too_large_to_hold_a_token_is_not_read(local: LocalService) -> None:
    Browser(local).refused("body_too_large", "POST", routes.SIGN_IN, {"token": "x" * SIGN_IN_BYTES})
    Browser(local).refused("malformed_request", "POST", routes.SIGN_IN, {"token": "x" * 201})


def test_a_refused_token_is_in_no_answer(local: LocalService, admin: Holder) -> None:
    wrong = admin.token[:-1] + ("a" if admin.token[-1] != "a" else "b")
    bodies = ({"token": wrong}, {"token": wrong * 6}, {"token": [wrong]}, {"token": wrong, "more": wrong})
    for body in bodies:
        answer = Browser(local).send("POST", routes.SIGN_IN, body)
        assert answer.status in (400, 401)
        assert wrong.encode() not in answer.content


@pytest.fixture
def behind_tls(tmp_path: Path) -> Iterator[LocalService]:
    with LocalService(tmp_path / "tls", ui_hosts="Dash.Example,[fd00::7]") as service:
        yield service


@pytest.mark.parametrize("origin", ["https://dash.example", "https://dash.example:8443", "https://[fd00::7]"])
def test_a_name_of_the_settings_is_taken_under_tls(behind_tls: LocalService, origin: str) -> None:
    browser = signed_in(behind_tls, behind_tls.new_token(Scope.ADMIN), origin=origin)
    assert list(browser.cookies) == [SECURE_NAME]
    assert browser.ask("POST", routes.PROJECTS, {"name": "made"})["name"] == "made"


def test_a_name_of_the_settings_is_refused_without_tls_and_its_plain_cookie_is_nothing(
    behind_tls: LocalService,
) -> None:
    token = behind_tls.new_token(Scope.ADMIN)
    problem = Browser(behind_tls, "http://dash.example").refused(
        "origin_refused", "POST", routes.SIGN_IN, {"token": token}
    )
    assert "SHARDKEEP_SERVICE_UI_PLAIN_HTTP" in problem["detail"]
    (secret,) = signed_in(behind_tls, token).cookies.values()
    planted = Browser(behind_tls, "https://dash.example", cookies={PLAIN_NAME: secret})
    planted.refused("token_missing", "GET", routes.TOKEN_SELF)


def test_forwarded_headers_of_a_client_change_nothing(behind_tls: LocalService) -> None:
    forged: dict[str, str | None] = {
        "x-forwarded-host": "dash.example",
        "x-forwarded-proto": "https",
        "forwarded": "host=dash.example;proto=https",
    }
    token = behind_tls.new_token(Scope.ADMIN)
    browser = Browser(behind_tls, "http://elsewhere.example")
    browser.refused("origin_refused", "POST", routes.SIGN_IN, {"token": token}, headers=forged)
    browser = Browser(behind_tls, "http://dash.example")
    browser.refused("origin_refused", "POST", routes.SIGN_IN, {"token": token}, headers=forged)


def test_plain_http_is_taken_where_the_settings_allow_it(tmp_path: Path) -> None:
    with LocalService(tmp_path / "plain", ui_hosts="10.0.0.7", ui_plain_http=True) as service:
        browser = signed_in(service, service.new_token(Scope.ADMIN), origin="http://10.0.0.7:8700")
        assert list(browser.cookies) == [PLAIN_NAME]
        assert browser.ask("POST", routes.PROJECTS, {"name": "made"})["name"] == "made"
        Browser(service, "http://10.0.0.8").refused("origin_refused", "POST", routes.SIGN_IN, {"token": "x"})


@pytest.mark.parametrize("database_kind", [POSTGRESQL], indirect=True)
def test_replicas_know_each_others_sign_ins_and_their_ends(
    local: LocalService, browser: Browser, tmp_path: Path, database_url: str | None
) -> None:
    with LocalService(tmp_path / "service", database_url=database_url) as other:
        elsewhere = Browser(other, cookies=dict(browser.cookies), csrf=browser.csrf)
        elsewhere.ask("GET", routes.TOKEN_SELF)
        elsewhere.ask("DELETE", routes.SIGN_IN)
    local.app.state.gate.forget()  # what it remembers for a second
    browser.refused("sign_in_ended", "GET", routes.TOKEN_SELF)
