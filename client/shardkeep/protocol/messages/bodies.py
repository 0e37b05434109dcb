"""What every body is: a request that refuses unknown members, an answer that ignores them, a problem, a page."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

Item = TypeVar("Item")


class Request(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """An answer body."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Problem(Answer):
    """RFC 9457 problem document: `code` is stable, `detail` says what to do next.

    Further members by code, all optional: `chunks` (digests), `ranks`, `tensors`, `passed_over`, `checkpoint_id`,
    `state`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    retryable: bool = False
    retry_after_seconds: float | None = None


class Page(Answer, Generic[Item]):
    """One page of a list; `next_cursor` is None at the end."""

    items: list[Item]
    next_cursor: str | None = None
