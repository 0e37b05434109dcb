"""A browser for each module, a service on a copy of the filled directory, and tabs that are signed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

import shardkeep_service
from tests.browser.dashboard import DESKTOP, WAIT_MILLISECONDS, ColorScheme, Dashboard, new_context
from tests.browser.filled_service import ENV, copy_of_filled
from tests.browser.served import Served
from tests.servers.chromium import ARGUMENTS, chromium
from tests.service_process import ServiceProcess

BUILT: Final = Path(shardkeep_service.__file__).parent / "ui" / "static" / "index.html"
AXE: Final = Path(__file__).parents[2] / "service/dashboard/node_modules/axe-core/axe.min.js"
TIMEOUT_SECONDS: Final = 900
"""The first test may install a browser."""

expect.set_options(timeout=WAIT_MILLISECONDS)

OpenDashboard = Callable[..., Dashboard]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def chromium_program() -> Path:
    return chromium()


@pytest.fixture(scope="session")
def built_dashboard() -> None:
    assert BUILT.exists(), f"the dashboard is not built: {BUILT} is missing. Run `make dashboard`"


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    assert AXE.exists(), f"{AXE} is missing. Run `make dashboard`"
    return AXE.read_text()


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One directory for all processes of this test run."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "filled"


@pytest.fixture(scope="module")
def served(shared_directory: Path, tmp_path_factory: pytest.TempPathFactory, built_dashboard: None) -> Iterator[Served]:
    data_dir = tmp_path_factory.mktemp("browser") / "service"
    filled = copy_of_filled(shared_directory, data_dir)
    with ServiceProcess(data_dir, env=ENV) as process:
        yield Served(process, filled)


@pytest.fixture(scope="module")
def browser(chromium_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Of each module its own: while Playwright runs, other tests of this process could not use asyncio."""
    home = str(tmp_path_factory.mktemp("home"))
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium_program, args=list(ARGUMENTS), env={"HOME": home}, timeout=120_000
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def kept_context(browser: Browser, served: Served) -> BrowserContext:
    """What the first tabs of a module's tests share, one after the other."""
    return new_context(browser, served.url)


@pytest.fixture
def open_dashboard(browser: Browser, kept_context: BrowserContext, served: Served) -> Iterator[OpenDashboard]:
    """Opens tabs: signed in with a token (an administrator's unless another is given, nobody's with None).

    Tabs that are open at once have nothing in common.
    """
    with ExitStack() as opened:
        unused = [kept_context]

        def open_one(
            token: str | None = served.token, *, size: tuple[int, int] = DESKTOP, scheme: ColorScheme = "light"
        ) -> Dashboard:
            context = unused.pop() if unused else None
            dashboard = Dashboard(browser, served.url, size=size, scheme=scheme, context=context)
            opened.callback(dashboard.close)
            if token is not None:
                dashboard.sign_in(token)
            return dashboard

        yield open_one


@pytest.fixture
def dashboard(open_dashboard: OpenDashboard) -> Dashboard:
    """A tab of an administrator."""
    return open_dashboard()
