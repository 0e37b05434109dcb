"""How dtypes are written into and read from safetensors files.

Written are only the dtypes that safetensors 0.4.5 knows, because one unknown dtype makes a reader refuse the whole
file. The others are written as views of the same bytes, and the true dtype and shape go into the metadata: a complex
number as two real ones in a trailing dimension of 2, one-byte floats as U8. All dtypes of newer readers are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shardkeep.errors import FormatError

_NATIVE: Final = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "int8": "I8",
    "int16": "I16", "int32": "I32", "int64": "I64", "bool": "BOOL",
}  # fmt: skip
_REAL_PAIRS: Final = {"complex32": "F16", "complex64": "F32", "complex128": "F64"}
_ONLY_READ: Final = {
    "C64": "complex64", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F4": "float4_e2m1fn_x2",
}  # fmt: skip
_READ: Final = {**{code: dtype for dtype, code in _NATIVE.items()}, **_ONLY_READ}
_UNSTORABLE_BITS: Final = {"F6_E2M3": 6, "F6_E3M2": 6}
_BITS: Final = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "F4": 4, **_UNSTORABLE_BITS,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileForm:
    """What a tensor looks like in a file. `is_view`: dtype and shape are not the true ones."""

    code: str
    shape: tuple[int, ...]
    is_view: bool


def file_form(dtype: str, shape: tuple[int, ...]) -> FileForm:
    """The form a tensor of this dtype is written in; never larger, never lossy."""
    if dtype in _NATIVE:
        return FileForm(_NATIVE[dtype], shape, is_view=False)
    if dtype in _REAL_PAIRS:
        return FileForm(_REAL_PAIRS[dtype], (*shape, 2), is_view=True)
    return FileForm("U8", shape, is_view=True)


def item_bits(name: str, code: str) -> int:
    """Bits of one element as the header counts them; FormatError on a dtype that safetensors does not have."""
    if code not in _READ and code not in _UNSTORABLE_BITS:
        raise FormatError(f"tensor {name!r} has the unknown dtype {code!r}")
    return _BITS.get(code, 8)


def stored_tensor(name: str, code: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape, as Shardkeep has them, of a tensor in a file; FormatError where it has none."""
    dtype = _READ.get(code)
    if dtype is None:
        raise FormatError(f"tensor {name!r} is {code}, which torch has no dtype for and Shardkeep cannot store")
    if code != "F4":
        return dtype, shape
    if not shape or shape[-1] % 2:
        raise FormatError(f"tensor {name!r} is F4 with the shape {list(shape)}: two numbers share a byte")
    return dtype, (*shape[:-1], shape[-1] // 2)
