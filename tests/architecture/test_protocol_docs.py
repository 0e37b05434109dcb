"""docs/protocol.md names every route and every error code, with its status and whether to repeat."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardkeep.protocol import routes
from shardkeep.protocol.error_codes import MEANINGS, ErrorCode

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
ROUTES = sorted(value for name, value in vars(routes).items() if name.isupper() and str(value).startswith("/"))


@pytest.mark.parametrize("template", ROUTES)
def test_the_page_names_every_route(template: str) -> None:
    assert re.search(re.escape(template) + r"`", PAGE)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_the_page_gives_status_and_repetition_of_every_code(code: ErrorCode) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and f"`{code}`" in line and line[2].isdigit()]
    assert len(rows) == 1
    _, statuses, _, repeat, _ = rows[0].split("|")
    assert str(MEANINGS[code].status) in statuses
    assert repeat.strip() == ("yes" if MEANINGS[code].retryable else "no")
