"""The wheel holds all that the service needs, and the service runs from it where nothing else of this tree is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service_process import ServiceProcess

ROOT = Path(__file__).parents[3]
COMMAND_SECONDS = 120
STATIC = "service/shardkeep_service/ui/static"


def run(*words: str | Path, env: dict[str, str] | None = None, cwd: str | Path = "/") -> str:
    done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
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


def test_the_wheel_holds_the_dashboard_as_it_was_built_and_none_of_its_sources(wheel: Path) -> None:
    built = ROOT / STATIC
    archive = zipfile.ZipFile(wheel)
    packed = [name for name in archive.namelist() if name.startswith("shardkeep_service/ui/static/")]
    wanted = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}

    assert {name.removeprefix("shardkeep_service/ui/static/") for name in packed} == wanted
    assert "index.html" in wanted
    index = archive.read("shardkeep_service/ui/static/index.html").decode()
    named = re.findall(r'(?:src|href)="/ui/([^"]+)"', index)
    assert any(name.endswith(".js") for name in named)
    assert set(named) <= wanted
    strays = [name for name in archive.namelist() if name.endswith((".ts", ".tsx", ".map")) or "node_modules" in name]
    assert strays == []


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """A tree of its own with what packaging reads, in which the dashboard was never built."""
    tree = tmp_path / "tree"
    for name in ("pyproject.toml", "hatch_build.py", "README.md", ".gitignore"):
        tree.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    for folder in ("client/shardkeep", "service/shardkeep_service", "migrations"):
        (tree / folder).mkdir(parents=True)
        (tree / folder / "__init__.py").touch()
    return tree


def test_no_package_is_made_without_the_dashboard_and_the_refusal_names_the_command(unbuilt: Path) -> None:
    for build in (["wheel"], ["sdist"]):
        words = [sys.executable, "-m", "hatchling", "build", "--target", *build]
        done = subprocess.run(words, cwd=unbuilt, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
        assert done.returncode != 0
        assert "run `make dashboard`" in done.stdout + done.stderr
    assert not list(unbuilt.glob("dist/*.*"))


def test_an_editable_installation_needs_no_dashboard_and_no_node(unbuilt: Path, tmp_path: Path) -> None:
    build = "import sys, hatchling.build; print(hatchling.build.build_editable(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)],
        cwd=unbuilt,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / done.stdout.strip().splitlines()[-1]).is_file()


def test_a_source_distribution_holds_the_built_files_so_that_its_users_need_no_node(unbuilt: Path) -> None:
    static = unbuilt / STATIC
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<!doctype html>")
    (static / "assets" / "index-abc.js").write_text("")
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", cwd=unbuilt)
    (packed,) = unbuilt.glob("dist/*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"{STATIC}/index.html", f"{STATIC}/assets/index-abc.js", "hatch_build.py"} <= names


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
    with urllib.request.urlopen(f"{service.url}/ui/runs/some/run-1.0", timeout=30) as page:
        assert page.read() == (ROOT / STATIC / "index.html").read_bytes()
    env = {**os.environ, "PYTHONPATH": ""}
    assert "the migrations give the schema" in run(installed / "shardkeep-service", "migrate", "--check", env=env)
