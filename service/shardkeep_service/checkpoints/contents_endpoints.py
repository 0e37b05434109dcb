"""Routes that tell what is in a checkpoint and what became of its ranks, for people to look at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from shardkeep.format.index_difference import Change
from shardkeep.protocol import routes
from shardkeep.protocol.messages import (
    DeletionImpact,
    DifferenceAnswer,
    Page,
    Rank,
    RankPart,
    RankState,
    SliceInfo,
    TensorChange,
    ValueInfo,
    ValueKind,
)
from shardkeep_service.access.dependency import Principal, Scope, requires
from shardkeep_service.checkpoints import impact, ranks, slices, values
from shardkeep_service.checkpoints.control_plane import ControlPlane, get_control_plane
from shardkeep_service.checkpoints.differences import Comparer, DifferenceFilter
from shardkeep_service.cursors import PageCursor, PageLimit
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter(tags=["checkpoints"])

Context = Annotated[ServiceContext, Depends(get_context)]
Control = Annotated[ControlPlane, Depends(get_control_plane)]
Reader = Annotated[Principal, Depends(requires(Scope.READ))]
Search = Annotated[str, Query(max_length=4096, description="Any part of a name, in upper or lower case.")]


@router.get(routes.RANKS)
def list_ranks(
    context: Context,
    principal: Reader,
    checkpoint: str,
    state: RankState | None = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[RankPart]:
    """Every rank of a checkpoint in any state, by rank."""
    return ranks.list_ranks(context, principal, checkpoint, state=state, limit=limit, cursor=cursor)


@router.get(routes.SLICES)
def list_slices(
    context: Context,
    control: Control,
    principal: Reader,
    checkpoint: str,
    tensor: Annotated[str, Query(max_length=4096)],
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[SliceInfo]:
    """The stored slices of one tensor of a committed checkpoint."""
    return slices.list_slices(context, control.indexes, principal, checkpoint, tensor, limit=limit, cursor=cursor)


@router.get(routes.VALUES)
def list_values(
    context: Context,
    control: Control,
    principal: Reader,
    checkpoint: str,
    search: Search = "",
    kind: ValueKind | None = None,
    rank: Annotated[Rank | None, Query(description="Only what this rank keeps for itself.")] = None,
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> Page[ValueInfo]:
    """The values of a committed checkpoint. A page may be short and still have a next one."""
    wanted = values.ValueFilter(search, kind, rank)
    return values.list_values(context, control.turns, principal, checkpoint, wanted, limit=limit, cursor=cursor)


@router.get(routes.DIFFERENCES)
def list_differences(
    context: Context,
    control: Control,
    principal: Reader,
    checkpoint: str,
    other: str,
    change: TensorChange | None = None,
    search: Search = "",
    limit: PageLimit = 50,
    cursor: PageCursor = None,
) -> DifferenceAnswer:
    """What a committed checkpoint has that another has not, or has otherwise, by the fingerprints of segments."""
    comparer = Comparer(context, control.indexes, control.differences, control.turns)
    wanted = DifferenceFilter(None if change is None else Change[change.upper()], search)
    return comparer.list_differences(principal, checkpoint, other, wanted, limit=limit, cursor=cursor)


@router.get(routes.IMPACT)
def get_impact(context: Context, control: Control, principal: Reader, checkpoint: str) -> DeletionImpact:
    """What deleting a committed checkpoint would mean."""
    return impact.deletion_impact(context, control.impact_turns, principal, checkpoint)
