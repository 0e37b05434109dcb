"""Where a command's answer, its notes, its progress and its error go. What they say is the commands' business.

Stdout carries the answer and nothing else: text, or with --json one JSON document. Notes, progress and errors go to
stderr; with --json notes and errors are JSON there, one line each, and there is no progress.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any, TextIO

from pydantic import BaseModel
from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from shardkeep.cli.exit_codes import exit_code_of
from shardkeep.cli.human_text import printable
from shardkeep.errors import ServiceError, ShardkeepError

_WIDE = 1_000_000
"""The width where output is not a terminal: ids and names are never cut or wrapped."""

Advance = Callable[[int], None]


class ReaderGone(Exception):
    """Whoever read stdout has stopped. Not an OSError, which typer would end the process for."""


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self._progress_console = Console(file=self._stderr, highlight=False)

    def answer(self, document: Mapping[str, Any], *, show: Callable[[Screen], None]) -> None:
        """The command's one answer: `document` with --json, else what `show` prints."""
        if self.as_json:
            text = json.dumps(plain(document), ensure_ascii=True, allow_nan=False) + "\n"
        else:
            screen = Screen(self._stdout)
            show(screen)
            text = screen.text()
        try:
            self._stdout.write(text)
            self._stdout.flush()
        except BrokenPipeError as exc:
            raise ReaderGone from exc

    def note(self, message: str) -> None:
        """Something worth knowing that is no error."""
        self._line({"note": message}, message)

    def error(self, error: ShardkeepError) -> None:
        """Why the command did not do what was asked."""
        self._line({"error": error_document(error)}, f"shardkeep: {error}")

    def usage(self, message: str, usage: str) -> None:
        """The command line is wrong."""
        document = {"error": {"code": "usage", "message": message, "exit_code": 2}}
        self._line(document, "\n".join(filter(None, (usage, f"shardkeep: {message}"))))

    @contextmanager
    def progress(self, what: str, total_bytes: int) -> Iterator[Advance]:
        """A bar on stderr while bytes are moved; only on a terminal."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        hidden = self.as_json or not self._stderr.isatty()
        with Progress(*columns, console=self._progress_console, transient=True, disable=hidden) as bar:
            task = bar.add_task(printable(what), total=total_bytes)
            yield lambda size_bytes: bar.advance(task, size_bytes)

    def _line(self, document: Mapping[str, Any], text: str) -> None:
        line = json.dumps(plain(document)) if self.as_json else _printable_lines(text)
        self._stderr.write(line + "\n")
        self._stderr.flush()


class Screen:
    """Text for stdout, gathered. Names are shown with control characters escaped, and never read as markup."""

    def __init__(self, stdout: TextIO) -> None:
        self._is_terminal = stdout.isatty()
        self._gathered = StringIO()
        width = Console(file=stdout).width if self._is_terminal else _WIDE
        self._console = Console(file=self._gathered, width=width, highlight=False, markup=False, emoji=False)

    def text(self) -> str:
        """All lines so far."""
        return self._gathered.getvalue()

    def line(self, text: str) -> None:
        """One line."""
        self._gathered.write(printable(text) + "\n")

    def fields(self, rows: Sequence[tuple[str, str]], *, indent: int = 0) -> None:
        """Labels with their values, one a line, values aligned."""
        width = max((len(label) for label, _ in rows), default=0)
        for label, value in rows:
            self.line(f"{' ' * indent}{label:<{width}}  {value}")

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
        """A table; columns named in `right` are aligned right. On a terminal long cells fold, ids never do."""
        table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
        for heading in headings:
            justify: JustifyMethod = "right" if heading in right else "left"
            table.add_column(
                heading, justify=justify, no_wrap=heading == "ID" or not self._is_terminal, overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        with self._console.capture() as capture:
            self._console.print(table)
        self._gathered.writelines(line.rstrip() + "\n" for line in capture.get().splitlines())


def error_document(error: ShardkeepError) -> dict[str, Any]:
    """An error as JSON: stable `code`, the message and what the service added."""
    document: dict[str, Any] = {
        "code": getattr(error, "code", None) or _snake_case(type(error).__name__),
        "message": str(error),
        "exit_code": int(exit_code_of(error)),
    }
    if isinstance(error, ServiceError):
        document |= {"status": error.status, "request_id": error.request_id, "retryable": error.retryable}
        document |= {key: value for key, value in error.extra.items() if key not in document}
    for name in ("candidates", "passed_over"):
        if getattr(error, name, ()):
            document[name] = list(getattr(error, name))
    return document


def plain(value: object) -> Any:
    """The value with messages as JSON would have them."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())


def _snake_case(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
