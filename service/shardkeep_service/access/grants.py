"""What a token may grant another: never a wider scope, another project or a longer life than its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.access.principal import Principal
from shardkeep_service.access.scopes import Scope
from shardkeep_service.errors import Refusal
from shardkeep_service.moments import micros


@dataclass(frozen=True, slots=True)
class Grant:
    """What a new token will be. No `project_ids` means every project; `expires_at` is database time, None is never."""

    scope: Scope
    project_ids: tuple[str, ...]
    expires_at: int | None


def plan_grant(
    giver: Principal,
    scope: Scope,
    project_ids: Sequence[str] | None,
    *,
    now: int,
    lifetime_seconds: float | None,
) -> Grant:
    """The grant asked for, within the giver's bounds where none were given; Refusal `scope_too_narrow` beyond them."""
    if not giver.scope.includes(scope):
        raise _wider(giver, f"it has scope {giver.scope} and cannot give {scope}")
    if project_ids is not None and any(not giver.sees(project_id) for project_id in project_ids):
        raise _wider(giver, "it is bound to other projects")
    chosen = sorted(giver.project_ids or ()) if project_ids is None else sorted(set(project_ids))
    return Grant(scope, tuple(chosen), _expiry(giver, now, lifetime_seconds))


def _expiry(giver: Principal, now: int, lifetime_seconds: float | None) -> int | None:
    if lifetime_seconds is None:
        return giver.expires_at
    expires_at = now + micros(lifetime_seconds)
    if giver.expires_at is not None and expires_at > giver.expires_at:
        left = (giver.expires_at - now) // 1_000_000
        raise _wider(giver, f"it expires in {left} s itself and cannot give {lifetime_seconds:g} s")
    return expires_at


def _wider(giver: Principal, reason: str) -> Refusal:
    return Refusal(
        ErrorCode.SCOPE_TOO_NARROW,
        f"{giver.name!r} may not make this token: {reason}; ask for less, or use a token that reaches further",
    )
