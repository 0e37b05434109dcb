"""Values: non-tensor state as bytes and back, without pickle. See `value_encoding` and `value_decoding`."""

from shardkeep.format.value_decoding import Fetch, decode_value
from shardkeep.format.value_encoding import Extract, encode_value
from shardkeep.format.value_nodes import EXTRACT_OVER_BYTES
from shardkeep.format.value_types import register_value_type

__all__ = ["EXTRACT_OVER_BYTES", "Extract", "Fetch", "decode_value", "encode_value", "register_value_type"]
