"""The horizon: what was claimed before it is needed by nobody, unless a manifest names it.

The one inequality that collection beside writers rests on (decision 0014):

- A manifest is counted only while its checkpoint is open, at most `open_limit` after that opened; and whatever it names
  was claimed, when it was checked, within `claim_repeat`, or is claimed then in the statement that finds it live.
- So a chunk that a manifest counted at V names has a claim not older than V - open_limit - claim_repeat.
- Marking begins at M and reads every manifest counted before. One that it does not see was counted after M: its chunks
  have claims younger than M - open_limit - claim_repeat, which is a whole grace after the horizon.

The grace covers what is not instant: transactions under way while marking begins, and the drift of a failed-over
database's clock.
"""

from __future__ import annotations

from shardkeep_service.moments import micros
from shardkeep_service.settings import Settings


def claim_horizon(settings: Settings, marking_began: int) -> int:
    """The database time before which a claim protects no chunk any more."""
    alive = settings.open_limit_seconds + settings.claim_repeat_seconds + settings.collection_grace_seconds
    return marking_began - micros(alive)


def finished_horizon(settings: Settings, now: int) -> int:
    """The database time before which an aborted checkpoint was opened that nobody writes to any more."""
    return now - micros(settings.open_limit_seconds + settings.collection_grace_seconds)


def grace_horizon(settings: Settings, now: int) -> int:
    """The database time before which what was found needless may be removed."""
    return now - micros(settings.collection_grace_seconds)


def purge_horizon(settings: Settings, now: int) -> int:
    """The database time before which what was deleted can be restored no more."""
    return now - micros(settings.deleted_keep_seconds)
