"""A real Chromium for tests: the system's, else one that is installed now, once, however many processes ask."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROGRAM_VARIABLE: Final = "SHARDKEEP_TEST_CHROMIUM"
"""Names the program to use in place of the one that is found."""
NAMES: Final = ("chromium", "google-chrome-stable", "google-chrome")
_ANSWER_SECONDS: Final = 60.0
_INSTALL_SECONDS: Final = 600.0
_APT: Final = (
    ("apt-get", "-q", "update"),
    ("apt-get", "-q", "install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"),
)
_APT_ENVIRONMENT: Final = {"DEBIAN_FRONTEND": "noninteractive"}
_FEATURES_OFF: Final = (
    # two pages for its address field, in each window: three quarters of what a window costs
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
    # what Playwright turns off, as this list replaces its own
    *("AimEnabled", "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying"),
    *("OptimizationHints", "PaintHolding", "PreconnectToSearch", "ThirdPartyStoragePartitioning"),
)
ARGUMENTS: Final = (
    "--no-sandbox",  # its sandbox refuses root; only pages of the tests are opened
    "--disable-background-networking",
    "--disable-component-update",
    f"--disable-features={','.join(_FEATURES_OFF)}",
    "--disable-dev-shm-usage",  # /dev/shm of containers is small
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP evil.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
"""Nothing but this machine is reached, whatever a page or the browser itself asks for. `evil.test` is this machine."""


class NoChromium(Exception):
    """There is none, and none could be installed; says what was tried."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """One way to come to a browser, and why it did not."""

    way: str
    reason: str


def chromium() -> Path:
    """A Chromium that starts. Installs one with apt-get as root, else with Playwright; NoChromium."""
    found = working_chromium()
    if found is not None:
        return found
    with _alone():
        return working_chromium() or _installed()


def working_chromium(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The browser that the environment names, one on the path, or Playwright's own; None without one that starts."""
    given = environment.get(PROGRAM_VARIABLE)
    if given:
        if not _starts(Path(given)):
            raise NoChromium(f"{PROGRAM_VARIABLE} is {given}, which does not answer --version")
        return Path(given)
    for name in NAMES:
        program = shutil.which(name, path=environment.get("PATH"))
        if program is not None and _starts(Path(program)):
            return Path(program)
    own = _playwrights_own()
    return own if own is not None and _starts(own) else None


def _installed() -> Path:
    attempted = []
    for way, commands, environment in _ways():
        failure = _run_all(commands, environment)
        found = None if failure else working_chromium()
        if found is not None:
            return found
        attempted.append(Attempted(way, failure or "it brought no browser that starts"))
    raise NoChromium(no_chromium_text(attempted))


def _ways() -> Iterator[tuple[str, Sequence[Sequence[str]], Mapping[str, str]]]:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        yield "apt-get install chromium", _APT, _APT_ENVIRONMENT
    yield "playwright install chromium", ((sys.executable, "-m", "playwright", "install", "chromium"),), {}


def no_chromium_text(attempted: Sequence[Attempted]) -> str:
    """What to do, and what was tried."""
    tried = "\n".join(f"- {each.way}: {each.reason}" for each in attempted)
    return (
        "The browser tests need Chromium. Install it (`apt-get install chromium`, or `playwright install --with-deps "
        f"chromium`), or name one in {PROGRAM_VARIABLE}. Tried:\n{tried}"
    )


def _run_all(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> str | None:
    """What the first command that fails said; None when all succeeded."""
    for command in commands:
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_INSTALL_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(command)} took more than {_INSTALL_SECONDS:.0f} s"
        if done.returncode != 0:
            return f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-1000:].strip()}"
    return None


def _starts(program: Path) -> bool:
    """Whether it answers --version; a stub that only says how to install a snap does not."""
    try:
        answer = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 and "Chrom" in answer.stdout


def _playwrights_own() -> Path | None:
    """Where Playwright keeps its browser, whether or not it is there."""
    if importlib.util.find_spec("playwright") is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return Path(playwright.chromium.executable_path)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Holds the lock that all test processes of this user take to install."""
    path = Path(tempfile.gettempdir()) / f"shardkeep-chromium-{os.getuid()}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
