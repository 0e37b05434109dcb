"""The element types a tensor can have, with the stable code each is stored as.

Names are torch's without `torch.`. A packed type (float4_e2m1fn_x2) is stored with torch's own shape: one element is
one byte that packs two numbers, so shapes and regions count bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep.errors import FormatError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    `float_planes`: the byte planes the `planes` codec splits an element into; 0 where splitting does not pay.
    """

    name: str
    code: int
    item_bytes: int
    float_planes: int


# Codes are stored: never change or reuse one, only append.
_DTYPES = (
    DType("float64", 1, 8, 8),
    DType("float32", 2, 4, 4),
    DType("float16", 3, 2, 2),
    DType("bfloat16", 4, 2, 2),
    DType("float8_e4m3fn", 5, 1, 0),
    DType("float8_e4m3fnuz", 6, 1, 0),
    DType("float8_e5m2", 7, 1, 0),
    DType("float8_e5m2fnuz", 8, 1, 0),
    DType("float8_e8m0fnu", 9, 1, 0),
    DType("float4_e2m1fn_x2", 10, 1, 0),
    DType("complex32", 11, 4, 4),
    DType("complex64", 12, 8, 8),
    DType("complex128", 13, 16, 16),
    DType("uint8", 14, 1, 0),
    DType("uint16", 15, 2, 0),
    DType("uint32", 16, 4, 0),
    DType("uint64", 17, 8, 0),
    DType("int8", 18, 1, 0),
    DType("int16", 19, 2, 0),
    DType("int32", 20, 4, 0),
    DType("int64", 21, 8, 0),
    DType("bool", 22, 1, 0),
)
_BY_NAME = {dtype.name: dtype for dtype in _DTYPES}
_BY_CODE = {dtype.code: dtype for dtype in _DTYPES}
_WITHOUT_NUMPY = frozenset(name for name in _BY_NAME if "_" in name) | {"bfloat16", "complex32"}

DTYPE_NAMES: tuple[str, ...] = tuple(_BY_NAME)

ITEM_BYTES_BY_CODE: npt.NDArray[np.int64] = np.zeros(256, np.int64)
"""Item bytes indexed by dtype code, 0 for codes that do not exist: for whole columns at once."""
for _dtype in _DTYPES:
    ITEM_BYTES_BY_CODE[_dtype.code] = _dtype.item_bytes
ITEM_BYTES_BY_CODE.flags.writeable = False


def dtype_named(name: str) -> DType:
    """The dtype called `name`, without `torch.`; FormatError if there is none."""
    dtype = _BY_NAME.get(name)
    if dtype is None:
        raise FormatError(f"unknown dtype {name!r}; known: {', '.join(DTYPE_NAMES)}")
    return dtype


def dtype_coded(code: int) -> DType:
    """The dtype stored as `code`; FormatError if there is none."""
    dtype = _BY_CODE.get(code)
    if dtype is None:
        raise FormatError(f"unknown dtype code {code}")
    return dtype


def numpy_dtype(name: str) -> np.dtype[np.generic] | None:
    """The little-endian numpy dtype with the same bytes, or None where numpy has none."""
    dtype = dtype_named(name)
    if dtype.name in _WITHOUT_NUMPY:
        return None
    return np.dtype(dtype.name).newbyteorder("<")
