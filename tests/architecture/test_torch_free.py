"""Everything but `pytorch` and `zero` imports without torch, the command line and the service included."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import shardkeep
import shardkeep_service

TORCH_PACKAGES = ("shardkeep.pytorch", "shardkeep.zero")
BLOCK_TORCH = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert "torch" not in sys.modules
"""


def modules_of(package: str, folder: str) -> list[str]:
    found = [info.name for info in pkgutil.walk_packages([folder], prefix=f"{package}.")]
    return [package, *(name for name in found if not name.startswith(TORCH_PACKAGES))]


@pytest.mark.parametrize("package", [shardkeep, shardkeep_service])
def test_no_module_outside_pytorch_needs_torch(package: object) -> None:
    name, file = package.__name__, package.__file__  # type: ignore[attr-defined]
    modules = modules_of(name, str(Path(file).parent))
    assert len(modules) > 20
    result = subprocess.run(
        [sys.executable, "-c", BLOCK_TORCH, *modules], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
