"""Exit codes, and what each error means for a shell."""

from __future__ import annotations

from enum import IntEnum

from shardkeep.errors import (
    ConfigurationError,
    Conflict,
    ConnectionFailed,
    NotFound,
    PermissionDenied,
    ServiceUnavailable,
    ShardkeepError,
    Unauthenticated,
)


class ExitCode(IntEnum):
    """What the command line exits with. Documented in docs/cli.md: never change one."""

    OK = 0
    FAILED = 1
    """The operation did not succeed: damage found, a save not committed, a malformed file."""
    USAGE = 2
    """The command line, the environment or a local path cannot work as given."""
    NOT_FOUND = 3
    """No such project, run, checkpoint or tensor, or one that is not committed."""
    REFUSED = 4
    """The token does not allow it, or it contradicts what the service or a directory holds."""
    UNREACHABLE = 5
    """The service did not answer, or answered that it cannot serve now."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class CommandError(ShardkeepError):
    """What a command refuses by itself. `code` is stable, for --json."""

    def __init__(self, message: str, *, code: str, exit_code: ExitCode, candidates: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code
        self.candidates = candidates


def usage_error(message: str, *, code: str = "usage") -> CommandError:
    """The command line asks for something that cannot work."""
    return CommandError(message, code=code, exit_code=ExitCode.USAGE)


def refusal(message: str, *, code: str) -> CommandError:
    """The command would do harm that was not asked for by name."""
    return CommandError(message, code=code, exit_code=ExitCode.REFUSED)


def exit_code_of(error: ShardkeepError) -> ExitCode:
    """The exit code an error ends the command with."""
    if isinstance(error, CommandError):
        return error.exit_code
    for kinds, code in _BY_KIND:
        if isinstance(error, kinds):
            return code
    return ExitCode.FAILED


_BY_KIND: tuple[tuple[tuple[type[ShardkeepError], ...], ExitCode], ...] = (
    ((ConfigurationError,), ExitCode.USAGE),
    ((NotFound,), ExitCode.NOT_FOUND),
    ((Unauthenticated, PermissionDenied, Conflict), ExitCode.REFUSED),
    ((ConnectionFailed, ServiceUnavailable), ExitCode.UNREACHABLE),
)
