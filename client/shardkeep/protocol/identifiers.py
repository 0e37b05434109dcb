"""Identifiers: what is a valid name or id. None of them ever becomes a path or an object key unchecked.

Names of projects and runs are ASCII on purpose: two Unicode spellings of one word would be two runs that look alike.
Ids are random, made by the service, and carry their kind as a prefix.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Final

from pydantic import StringConstraints

from shardkeep.errors import ConfigurationError

NAME_PATTERN: Final = r"^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9_-])?$"
HEX_32: Final = r"[0-9a-f]{32}"
RANK_LIMIT: Final = 1 << 20
"""World sizes and ranks stay below this."""

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A project or a run: 1 to 128 of A-Z a-z 0-9 . _ -, starting with a letter or digit, not ending in a dot."""
ProjectId = Annotated[str, StringConstraints(pattern=rf"^prj_{HEX_32}$")]
RunId = Annotated[str, StringConstraints(pattern=rf"^run_{HEX_32}$")]
AttemptId = Annotated[str, StringConstraints(pattern=rf"^att_{HEX_32}$")]
CheckpointId = Annotated[str, StringConstraints(pattern=rf"^ckp_{HEX_32}$")]
TokenId = Annotated[str, StringConstraints(pattern=rf"^tok_{HEX_32}$")]
LaunchId = Annotated[str, StringConstraints(pattern=rf"^{HEX_32}$")]
"""128 random bits, drawn once per launch and shared by all its ranks."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""BLAKE3 of a chunk's stored bytes, lower-case hexadecimal."""
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


def new_id(prefix: str) -> str:
    """A fresh id such as `ckp_` + 32 hexadecimal digits (128 random bits)."""
    return f"{prefix}_{secrets.token_hex(16)}"


def new_launch_id() -> str:
    """128 random bits; draw once and hand the same to every rank."""
    return secrets.token_hex(16)


def is_name(text: str) -> bool:
    """Whether `text` may name a project or a run."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def split_run_name(text: str) -> tuple[str, str]:
    """`project/run` as its two names; ConfigurationError says what is wrong with it."""
    project, slash, run = text.partition("/")
    if not slash or "/" in run:
        raise ConfigurationError(f"a run is named project/run, got {text!r}")
    for kind, name in (("project", project), ("run", run)):
        if not is_name(name):
            raise ConfigurationError(
                f"{name!r} cannot name a {kind}: use 1 to 128 of A-Z a-z 0-9 . _ - starting with a letter or digit"
                " and not ending in a dot"
            )
    return project, run
