"""Fields that many messages share: bounded numbers and texts, and metrics that JSON cannot write as numbers."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, StringConstraints

from shardkeep.protocol.identifiers import (
    RANK_LIMIT,
)

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _read_metric(value: object) -> object:
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _write_metric(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


Metric = Annotated[float, BeforeValidator(_read_metric), PlainSerializer(_write_metric, return_type=float | str)]
MetricName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Label = Annotated[str, StringConstraints(max_length=1000)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Rank = Annotated[int, Field(ge=0, lt=RANK_LIMIT)]
WorldSize = Annotated[int, Field(ge=1, le=RANK_LIMIT)]
Step = Annotated[int, Field(ge=0, le=2**62)]
Size = Annotated[int, Field(ge=0, le=2**62)]
