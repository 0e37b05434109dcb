"""How long a request may be held until there is news, as every route that waits takes it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from shardkeep.protocol.versions import WAIT_SECONDS_LIMIT

WaitSeconds = Annotated[float, Query(ge=0, le=WAIT_SECONDS_LIMIT, allow_inf_nan=False)]
