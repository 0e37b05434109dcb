"""Pages of other origins, in the browser of somebody who is signed in, change nothing and see nothing.

Another port of this machine is the same site: SameSite=Strict lets the cookie go along, and the service must refuse
by itself. Another host name is another site, as is a name that an attacker lets resolve to this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Response

from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.other_site import OtherSite
from tests.browser.served import Served

HOSTS: Final = ("127.0.0.1", "localhost")
REBOUND_HOST: Final = "evil.test"
"""Resolves to this machine in the browser of the tests."""


@pytest.fixture
def site() -> Iterator[OtherSite]:
    with OtherSite() as served:
        yield served


@pytest.fixture
def victim(open_dashboard: OpenDashboard) -> Dashboard:
    """An administrator's browser, whose tabs go elsewhere too."""
    dashboard = open_dashboard()
    dashboard.notes_foreign = False
    dashboard.expects("blocked by CORS policy")
    return dashboard


def what_is_there(served: Served) -> object:
    """Everything that the attacks below try to change."""
    with served.connect() as client:
        checkpoint = client.checkpoint(served.filled.latest).info
        return sorted(project.name for project in client.projects()), checkpoint.pinned, checkpoint.version


def answer_to(dashboard: Dashboard, site: OtherSite, host: str, path: str) -> Response:
    """What the service answered to the request that the other site's page makes."""
    with dashboard.page.expect_response(lambda answer: urlsplit(answer.url).path == path) as found:
        dashboard.page.goto(site.url(host))
    return found.value


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("/v1/projects", '{"name":"stolen","x":"', '"}'),
        ("/v1/tokens", '{"name":"stolen","scope":"admin","x":"', '"}'),
        ("/v1/projects/demo/retention/apply", "", ""),
        ("/v1/projects/demo/runs/transformer/save-request", "", ""),
    ],
    ids=["project", "token", "apply", "save now"],
)
def test_forms_of_another_origin_are_refused(
    victim: Dashboard, site: OtherSite, served: Served, host: str, path: str, name: str, value: str
) -> None:
    before = what_is_there(served)
    site.page = (
        f"<form method=post enctype=text/plain action='{served.url}{path}'><input name='{name}' value='{value}'></form>"
        "<script>document.forms[0].submit()</script>"
    )
    answer = answer_to(victim, site, host, path)
    sends_cookie = "cookie" in answer.request.all_headers()
    assert sends_cookie == (host == "127.0.0.1"), "SameSite=Strict holds back what another site sends, and only that"
    assert (answer.status, answer.json()["code"]) == (
        (403, "origin_refused") if sends_cookie else (401, "token_missing")
    )
    assert what_is_there(served) == before


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_scripts_of_another_origin_read_and_change_nothing(
    victim: Dashboard, site: OtherSite, served: Served, host: str, method: str
) -> None:
    before = what_is_there(served)
    url = f"{served.url}/v1/checkpoints/{served.filled.latest}" + ("" if method in ("GET", "DELETE") else "/pin")
    site.page = (
        f"<body><script>fetch('{url}', {{method: '{method}', credentials: 'include',"
        " headers: {'if-match': '\"1\"'}})"
        ".then(answer => answer.text()).catch(error => 'refused: ' + error)"
        ".then(text => { document.body.textContent = text })</script>"
    )
    victim.page.goto(site.url(host))
    victim.page.wait_for_function("document.body.textContent.startsWith('refused: TypeError')")
    assert what_is_there(served) == before


@pytest.mark.parametrize("host", HOSTS)
def test_a_script_that_needs_no_permission_is_refused_all_the_same(
    victim: Dashboard, site: OtherSite, served: Served, host: str
) -> None:
    """A simple request is sent at once, and only its answer is kept from the page."""
    before = what_is_there(served)
    site.page = (
        f"<script>fetch('{served.url}/v1/projects', {{method: 'POST', mode: 'no-cors', credentials: 'include',"
        ' body: \'{"name": "stolen"}\'})</script>'
    )
    answer = answer_to(victim, site, host, "/v1/projects")
    assert answer.status in (401, 403)
    assert what_is_there(served) == before


def test_another_origin_cannot_sign_somebody_in(victim: Dashboard, site: OtherSite, served: Served) -> None:
    """Else one would work in an attacker's sign-in without knowing."""
    before = victim.context.cookies()
    text = f'{{"token":"{served.filled.tokens.read}","x":"'
    site.page = (
        f"<form method=post enctype=text/plain action='{served.url}/v1/sign-in'>"
        f"<input name='{text}' value='\"}}'></form><script>document.forms[0].submit()</script>"
    )
    answer = answer_to(victim, site, "127.0.0.1", "/v1/sign-in")
    assert answer.status in (400, 403, 415, 422)
    assert victim.context.cookies() == before


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/ui/", "/ui/runs", "/v1/projects"])
def test_no_other_origin_can_frame_anything(
    victim: Dashboard, site: OtherSite, served: Served, host: str, path: str
) -> None:
    victim.expects("frame-ancestors", "X-Frame-Options", "Framing")
    site.page = f"<iframe src='{served.url}{path}' width=900 height=600></iframe>"
    victim.page.goto(site.url(host), wait_until="load")
    (frame,) = victim.page.main_frame.child_frames
    frame.wait_for_url(re.compile("^chrome-error://"))
    assert "Shardkeep" not in frame.content()


def test_a_page_that_opened_the_dashboard_has_no_hold_on_its_window(
    victim: Dashboard, site: OtherSite, served: Served
) -> None:
    site.page = f"<button onclick=\"window.opened = window.open('{served.url}/ui/')\">open</button>"
    victim.page.goto(site.url())
    with victim.context.expect_page() as opened:
        victim.page.get_by_role("button").click()
    opened.value.get_by_role("heading", level=1).wait_for()
    assert opened.value.evaluate("window.opener") is None
    victim.page.wait_for_function("window.opened.closed")


def test_a_name_that_somebody_lets_resolve_to_this_machine_is_not_the_dashboards(
    victim: Dashboard, served: Served
) -> None:
    """DNS rebinding: to the browser the attacker's page and the service are one origin then."""
    before = what_is_there(served)
    victim.expects("Cross-Origin-Opener-Policy header has been ignored")  # where there is neither TLS nor loopback
    victim.page.goto(f"http://{REBOUND_HOST}:{urlsplit(served.url).port}/ui/")
    ask = """
      async ([method, path, body]) => {
        const answer = await fetch(path, {method, body, headers: {'content-type': 'application/json'}})
        return [answer.status, (await answer.json()).code]
      }
    """
    assert victim.page.evaluate(ask, ["GET", "/v1/projects", None]) == [401, "token_missing"]
    signing_in = f'{{"token": "{served.token}"}}'
    assert victim.page.evaluate(ask, ["POST", "/v1/sign-in", signing_in]) == [403, "origin_refused"]
    assert what_is_there(served) == before
