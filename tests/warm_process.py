"""Real processes without the cost of imports: forked from a server that has the project's modules loaded.

A service spends some three seconds of CPU on imports, and the tests start hundreds. Each program is its own process
with its own environment, session, signals and exit code, and runs the `main` of its command line. Started by their real
commands are: those of the wheel, of the demo, and what measures memory.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Final, Literal

Program = Literal["shardkeep", "shardkeep-service"]
_MODULES: Final[Mapping[Program, str]] = {
    "shardkeep": "shardkeep.cli.main",
    "shardkeep-service": "shardkeep_service.cli.main",
}
_PR_SET_PDEATHSIG: Final = 1


def forkserver() -> ForkServerContext:
    """The one server of this process that forks its ranks and programs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.warm_modules"])
    return context


class WarmProcess:
    """A program under way; like `subprocess.Popen`, as far as tests use it. It dies with who started it."""

    def __init__(
        self,
        program: Program,
        arguments: tuple[str, ...],
        *,
        env: Mapping[str, str],
        stdout: Path,
        stderr: Path,
        stdin: Path | None = None,
        without: tuple[str, ...] = (),
    ) -> None:
        """Output is added to the files. Importing one of the modules of `without` fails there."""
        files = (stdin or Path(os.devnull), stdout, stderr)
        argv = (program, *arguments)
        self._process = forkserver().Process(
            target=_run, args=(_MODULES[program], argv, dict(env), files, without), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code once it ended; -signal when a signal ended it."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing happens to one that ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run_program(
    program: Program,
    *arguments: str,
    env: Mapping[str, str],
    stdin: str = "",
    timeout_seconds: float = 120,
    without: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end; one that takes too long is killed and is a subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory() as directory:
        given, out, err = (Path(directory) / name for name in ("in", "out", "err"))
        given.write_text(stdin)
        process = WarmProcess(program, arguments, env=env, stdin=given, stdout=out, stderr=err, without=without)
        try:
            code = process.wait(timeout_seconds)
        finally:
            process.kill()
        return subprocess.CompletedProcess((program, *arguments), code, out.read_text(), err.read_text())


def _run(
    module: str, argv: tuple[str, ...], env: dict[str, str], files: tuple[Path, Path, Path], without: tuple[str, ...]
) -> None:
    _let_go_of_the_fork_server()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    for number, (path, flags) in enumerate(
        zip(files, (os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_APPEND] * 2), strict=True)
    ):
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)))
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), line_buffering=True)
    for name in without:
        for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[loaded]
        sys.modules[name] = None  # type: ignore[assignment]
    sys.argv = list(argv)
    sys.exit(importlib.import_module(module).main())


def _let_go_of_the_fork_server() -> None:
    """It lives while anybody holds this pipe, as each process it forks does: then neither would end with the tests."""
    server: Any = multiprocessing.forkserver._forkserver  # there is no public way to it
    os.close(server._forkserver_alive_fd)
    server._forkserver_alive_fd = None
