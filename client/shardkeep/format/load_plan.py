"""Load requests and plans. The parts live in `load_request`, `load_plan_columns`, `load_planning` and `_encoding`."""

from shardkeep.format.load_plan_columns import LoadPlan, PieceColumns, PiecePlan, PlannedSegment
from shardkeep.format.load_plan_encoding import MAX_PLAN_RAW_BYTES, decode_load_plan, encode_load_plan
from shardkeep.format.load_planning import plan_load
from shardkeep.format.load_request import (
    MAX_REQUEST_RAW_BYTES,
    LoadRequest,
    RequestColumns,
    decode_load_request,
    decode_request_columns,
    encode_load_request,
)

__all__ = [
    "MAX_PLAN_RAW_BYTES",
    "MAX_REQUEST_RAW_BYTES",
    "LoadPlan",
    "LoadRequest",
    "PieceColumns",
    "PiecePlan",
    "PlannedSegment",
    "RequestColumns",
    "decode_load_plan",
    "decode_load_request",
    "decode_request_columns",
    "encode_load_plan",
    "encode_load_request",
    "plan_load",
]
