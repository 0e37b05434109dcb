from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shardkeep.connection.target_lifetimes import HeldTarget
from shardkeep.protocol.messages import Target

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def held(lives_seconds: float | None) -> HeldTarget:
    expires_at = None if lives_seconds is None else NOW + timedelta(seconds=lives_seconds)
    return HeldTarget(Target(method="GET", url="https://store/x", expires_at=expires_at), received=1000.0)


@pytest.mark.parametrize(
    ("lives_seconds", "age_seconds", "expected"),
    [(None, 1e9, False), (900, 60, False), (29, 60, True), (-5, 60, True), (-5, 1, False), (-5000, 19, False)],
)
def test_a_target_is_asked_for_again_shortly_before_it_expires_and_never_when_it_just_came(
    lives_seconds: float | None, age_seconds: float, expected: bool
) -> None:
    found = held(lives_seconds).is_expiring(monotonic=lambda: 1000.0 + age_seconds, now=lambda: NOW)
    assert found is expected


@pytest.mark.parametrize(
    ("url", "asked_direct", "direct", "wanted"),
    [
        ("https://store/x", True, True, True),
        ("https://store/x", True, False, False),
        ("https://store/x", False, False, True),
        ("/v1/x", True, False, True),
        ("/v1/x", False, True, True),
    ],
)
def test_a_target_of_a_store_that_was_given_up_is_not_used_unless_there_is_no_other(
    url: str, asked_direct: bool, direct: bool, wanted: bool
) -> None:
    assert HeldTarget(Target(method="PUT", url=url), asked_direct=asked_direct).is_wanted(direct=direct) is wanted
