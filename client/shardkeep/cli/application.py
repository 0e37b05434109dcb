"""The typer application: global options and all commands, and how their errors become exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from shardkeep.cli import (
    audit,
    comparing,
    keeping,
    listing,
    pulling,
    pushing,
    quotas,
    requesting,
    retention,
    showing,
    tagging,
    tokens,
    verifying,
)
from shardkeep.cli.exit_codes import ExitCode, exit_code_of
from shardkeep.cli.invocation import Invocation, installed_version
from shardkeep.cli.output import Output
from shardkeep.errors import ShardkeepError

_FLAG = "--json"
_WITH_VALUE = ("--url", "--token")
_ARGUMENT_NOTE = (
    "a token on the command line can be seen by everyone on this machine and stays in the shell's history; set "
    "SHARDKEEP_TOKEN instead"
)
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""click's UsageError: its own in older versions of typer, typer's copy in newer ones."""

app = typer.Typer(
    name="shardkeep",
    help="Look at, compare, check and move checkpoints of a Shardkeep service.",
    epilog="--json, --url and --token may stand anywhere. Exit codes: 0 done, 1 failed or damage found, 2 usage, "
    "3 not found, 4 refused, 5 unreachable.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_READING = (listing, showing, comparing, verifying, pulling)
_CHANGING = (pushing, requesting, keeping, tagging, retention, tokens, quotas, audit)
for _module in (*_READING, *_CHANGING):
    _module.register(app)


@app.callback(invoke_without_command=True)
def global_options(
    context: typer.Context,
    *,
    url: Annotated[
        str | None, typer.Option("--url", help="The service; else SHARDKEEP_URL, else the one on this machine.")
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", help="Better: SHARDKEEP_TOKEN, which others cannot see.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout; notes and errors as JSON lines on stderr.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    """Look at, compare, check and move checkpoints of a Shardkeep service."""
    invocation = context.obj
    assert isinstance(invocation, Invocation)  # main() passes it
    assert invocation.output.as_json == as_json  # main() has seen the flag
    invocation.url, invocation.token = url, token
    if version:
        found = installed_version()
        invocation.output.answer({"version": found}, show=lambda screen: screen.line(f"shardkeep {found}"))
        raise typer.Exit(ExitCode.OK)
    if context.invoked_subcommand is None:
        sys.stderr.write(context.get_help() + "\n")
        raise typer.Exit(ExitCode.USAGE)
    if token is not None:
        invocation.output.note(_ARGUMENT_NOTE)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. Known errors are told in one message, without a traceback.

    KeyboardInterrupt and ReaderGone are left to the caller.
    """
    global_first = hoist_global_options(arguments)
    output = Output(as_json=_FLAG in global_first[: _leading(global_first)])
    invocation = Invocation(output)
    try:
        with _noting_warnings(output), closing(invocation):
            code = app(global_first, prog_name="shardkeep", standalone_mode=False, obj=invocation)
    except ShardkeepError as error:
        output.error(error)
        return exit_code_of(error)
    except _UsageError as error:
        output.usage(_message(error), _usage(error))
        return ExitCode.USAGE
    except typer.Abort:
        return ExitCode.INTERRUPTED
    return int(code or 0)


def hoist_global_options(arguments: Sequence[str]) -> list[str]:
    """The arguments with the global options in front, so that they may stand after the command too."""
    hoisted: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            return [*hoisted, *rest, argument, *left]
        if argument == _FLAG or argument.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            hoisted.append(argument)
        elif argument in _WITH_VALUE:
            hoisted += [argument, *left[:1]]
            del left[:1]
        else:
            rest.append(argument)
    return [*hoisted, *rest]


def _leading(arguments: Sequence[str]) -> int:
    """How many of the hoisted arguments are global options with their values."""
    position = 0
    while position < len(arguments) and arguments[position].startswith((_FLAG, *_WITH_VALUE)):
        position += 2 if arguments[position] in _WITH_VALUE else 1
    return position


def _message(error: Exception) -> str:
    describe = getattr(error, "format_message", None)
    return str(describe()) if describe is not None else str(error)


def _usage(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return "" if context is None else f"{context.get_usage()}\nTry '{context.command_path} --help' for help."


class _NoteHandler(logging.Handler):
    """Warnings of the client's log as notes on stderr."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self._output.note(record.getMessage())


@contextmanager
def _noting_warnings(output: Output) -> Iterator[None]:
    log = logging.getLogger("shardkeep")
    handler = _NoteHandler(output)
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate
