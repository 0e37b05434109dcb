"""Indexes: all slices of a committed checkpoint. The parts live in `index_columns`, `_building` and `_encoding`."""

from shardkeep.format.index_building import IndexBuilder, build_index
from shardkeep.format.index_columns import Index, StoredSlice, TensorEntry
from shardkeep.format.index_encoding import MAX_INDEX_RAW_BYTES, decode_index, decode_tensor_table, encode_index
from shardkeep.format.index_problems import MAX_INDEX_PROBLEMS, IndexProblem

__all__ = [
    "MAX_INDEX_PROBLEMS",
    "MAX_INDEX_RAW_BYTES",
    "Index",
    "IndexBuilder",
    "IndexProblem",
    "StoredSlice",
    "TensorEntry",
    "build_index",
    "decode_index",
    "decode_tensor_table",
    "encode_index",
]
