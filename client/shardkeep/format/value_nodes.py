"""The stored form of values: msgpack's own None, bool, int of 64 bits, float, str and bytes; the rest as tagged arrays.

A tagged array begins with a `Tag`, whose comment says what follows; byte for byte in docs/format.md.
"""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

MAX_DEPTH = 100
"""Containers within containers; deeper values, and values that contain themselves, are refused."""

EXTRACT_OVER_BYTES = 65536


class Tag(IntEnum):
    """What an array is. Codes are stored: never change one."""

    LIST = 0
    """items..."""
    TUPLE = 1
    """items..."""
    DICT = 2
    """key, value, key, value, ... in insertion order"""
    SET = 3
    """items..., sorted by their encoded bytes"""
    FROZENSET = 4
    """items..., likewise"""
    ORDERED_DICT = 5
    """as DICT"""
    COUNTER = 6
    """as DICT"""
    DEQUE = 7
    """maxlen or None, items..."""
    DEFAULT_DICT = 8
    """name of the factory, key, value, ..."""
    BIG_INT = 9
    """two's complement, little-endian, as short as possible"""
    COMPLEX = 10
    """real, imaginary"""
    SCALAR = 11
    """numpy dtype string, bytes"""
    ARRAY = 12
    """numpy dtype string, shape, bytes in C order"""
    BYTEARRAY = 13
    """bytes"""
    EXTENSION = 14
    """tag, plain value"""
    EXTRACTED = 15
    """name of the slice that holds the bytes; stands where bytes would"""
    INT_LIST = 16
    """a LIST of at least 16 ints of 64 bits: bytes, little-endian"""
    INT_TUPLE = 17
    """likewise a TUPLE"""
    TEXT = 18
    """a str whose UTF-8 bytes were extracted"""


FACTORIES: dict[str, type] = {
    "int": int,
    "list": list,
    "dict": dict,
    "set": set,
    "float": float,
    "str": str,
}
"""The factories a stored defaultdict may have."""

MIN_PACKED_INTS = 16

_DTYPE_TEXT = re.compile(r"[<>|][biufcSUMm][1-9][0-9]{0,9}(\[[0-9]{0,9}[A-Za-zμ]{1,3}\])?")


def storable_dtype(dtype: np.dtype[np.generic]) -> str | None:
    """The stored text of a numpy dtype, or None where its bytes mean nothing elsewhere (objects, structs, long double).

    Byte order is kept: a big-endian array comes back big-endian.
    """
    if dtype.names is not None or dtype.subdtype is not None:
        return None
    text = str(dtype.str)
    return text if numpy_dtype_of(text) == dtype else None


def numpy_dtype_of(text: str) -> np.dtype[np.generic] | None:
    """The numpy dtype of a stored text, or None if it is not one that can be stored."""
    if _DTYPE_TEXT.fullmatch(text) is None or text[1:] in ("f16", "c32"):
        return None
    try:
        return np.dtype(text)
    except (TypeError, ValueError):
        return None
