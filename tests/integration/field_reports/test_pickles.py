"""A pickle among the bytes of a checkpoint stays bytes: nothing that saves, serves, loads or exports it runs it."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import shardkeep as sk
from tests.service_process import ServiceProcess

SOURCES = [Path(__file__).parents[3] / name for name in ("client/shardkeep", "service/shardkeep_service")]
DANGEROUS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


class Writes:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self._path, "pickles run code")


def test_E189_a_pickle_in_the_state_is_never_run_by_service_client_or_export(
    service: ServiceProcess, tmp_path: Path
) -> None:
    made = tmp_path / "made-by-a-pickle"
    poison = pickle.dumps(Writes(made))
    pickle.loads(poison)
    assert made.exists()
    made.unlink()

    with sk.connect(service.url, service.token) as client:
        run = client.run("project/poisoned")
        run.save(1, {"w": np.arange(4, dtype=np.float32), "extra_state": poison, "rng": {"state": poison}}).wait(60)
        found = run.latest()
        assert found is not None
        state: dict[str, Any] = {"w": np.zeros(4, np.float32), "extra_state": b"", "rng": {"state": b""}}
        found.load_into(state)
        assert state["extra_state"] == state["rng"]["state"] == poison
    for arguments in (["show", found.id, "--tensors"], ["pull", found.id, str(tmp_path / "out")]):
        command = [sys.executable, "-m", "shardkeep.cli.main", *arguments]
        subprocess.run(command, env=service.environment(), capture_output=True, check=True, timeout=100)
    service.restart()
    assert not made.exists()


def test_E189_no_module_of_client_or_service_can_unpickle() -> None:
    for path in (path for source in SOURCES for path in source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {name.name.partition(".")[0] for name in node.names} & DANGEROUS, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in DANGEROUS, path
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "np.load", "numpy.load"):
                raise AssertionError(f"{path} calls {ast.unparse(node.func)}, which may unpickle")
