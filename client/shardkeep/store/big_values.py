"""Big values: leaves above 64 KiB, whose bytes are stored as chunks under a name made of their content.

Ranks that hold the same bytes write the same name, so that the value around them still counts as global.
"""

from __future__ import annotations

from typing import Final

from shardkeep.errors import FormatError
from shardkeep.format.fingerprints import fingerprint
from shardkeep.format.names import join_name, split_name

VALUE_PART: Final = "@value"
"""First part of these names: they are no tensors of the user's."""
_FINGERPRINT_DIGITS: Final = 32


def big_value_name(data: memoryview) -> str:
    """The name of bytes: `@value`, fingerprint, size."""
    return join_name((VALUE_PART, fingerprint(data).hex(), str(data.nbytes)))


def big_value_bytes(name: str) -> int:
    """The size in a name; FormatError when it is not the name of a big value."""
    parts = split_name(name)
    if len(parts) != 3 or parts[0] != VALUE_PART or len(parts[1]) != _FINGERPRINT_DIGITS or not parts[2].isdigit():
        raise FormatError(f"a value refers to {name!r}, which is not the name of a big value")
    return int(parts[2])
