"""The entry point of `shardkeep`: the edge of the process. The commands are in `application`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Being interrupted, also while the program is still loading, is no traceback."""
    try:
        from shardkeep.cli.application import run
        from shardkeep.cli.output import ReaderGone

        try:
            code = run(sys.argv[1:] if arguments is None else arguments)
        except ReaderGone:
            _discard_stdout()
            return _BROKEN_PIPE
    except KeyboardInterrupt:
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        sys.stderr.write("\nshardkeep: interrupted\n")
    return code


def _discard_stdout() -> None:
    # What is left in the buffer must not raise again when the interpreter flushes it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
