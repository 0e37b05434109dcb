"""The wheel holds all that the service needs, and the service runs from it where nothing else of this tree is."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service_process import ServiceProcess

ROOT = Path(__file__).parents[3]
COMMAND_SECONDS = 120


def run(*words: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    run(*pip, "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("shardkeep-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with this wheel and, behind it, the dependencies that are installed here.

    A path in a .pth file is searched, but the .pth files in it are not read: what makes this tree importable here does
    not do so there.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return folder / "bin"


def test_the_wheel_holds_migrations_and_nothing_that_is_not_code_of_its_two_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    versions = {path.name for path in (ROOT / "migrations" / "versions").glob("*.py")}
    shipped = {Path(name).name for name in names if name.startswith("shardkeep_service/migrations/versions/")}
    assert shipped == versions
    assert "shardkeep_service/migrations/env.py" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"shardkeep", "shardkeep_service"}


def test_every_command_of_the_image_is_there_and_imports_from_the_wheel(installed: Path) -> None:
    env = {"PATH": str(installed)}
    assert "serve" in run(installed / "shardkeep-service", "--help", env=env)
    assert "ls" in run(installed / "shardkeep", "--help", env=env)
    where = run(installed / "python", "-c", "import shardkeep_service; print(shardkeep_service.__file__)", env=env)
    assert Path(where.strip()).is_relative_to(installed.parent)


@pytest.fixture
def service(installed: Path, tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path / "data", program=[str(installed / "shardkeep-service")]) as running:
        yield running


def test_the_service_migrates_and_serves_from_the_wheel(service: ServiceProcess, installed: Path) -> None:
    assert service.is_ready()
    assert '"revision"' in service.log
    env = {**os.environ, "PYTHONPATH": ""}
    assert "the migrations give the schema" in run(installed / "shardkeep-service", "migrate", "--check", env=env)
