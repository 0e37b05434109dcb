"""The version a caller saw: given as ETag, sent back as If-Match with a change, so that nobody undoes what they did not
see.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Protocol, TypeVar

from fastapi import Header, Response

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.errors import Refusal

IfMatch = Annotated[str | None, Header(alias="If-Match")]

_ETAG: Final = re.compile(r'"?([0-9]{1,18})"?')


class Versioned(Protocol):
    """What has a version."""

    @property
    def version(self) -> int:
        """Counts its changes."""
        ...


Answer = TypeVar("Answer", bound=Versioned)


def with_etag(response: Response, answer: Answer) -> Answer:
    """The answer, its version as the response's ETag."""
    response.headers["etag"] = f'"{answer.version}"'
    return answer


def seen_version(if_match: str | None) -> int:
    """The version in an If-Match header; refuses `version_required`, and `version_changed` for no version of ours."""
    version = seen_version_if_given(if_match)
    if version is None:
        raise Refusal(
            ErrorCode.VERSION_REQUIRED,
            'send the version you saw as If-Match: "<version>"; it is `version` of what you change',
        )
    return version


def seen_version_if_given(if_match: str | None) -> int | None:
    """Of a change that may also be asked for whatever was there before; refuses `version_changed`."""
    if if_match is None:
        return None
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        raise Refusal(ErrorCode.VERSION_CHANGED, f"If-Match {if_match[:80]!r} is no version of ours; read it again")
    return int(match[1])


def check_version(present: int, seen: int | None, *, what: str, **details: Any) -> None:
    """Refuses `version_changed`; `what` is what is there now, in words. Nothing was seen: anything may be there."""
    if seen is not None and present != seen:
        raise Refusal(
            ErrorCode.VERSION_CHANGED,
            f"{what} at version {present}, you saw {seen}; read it again and decide anew",
            version=present,
            **details,
        )
