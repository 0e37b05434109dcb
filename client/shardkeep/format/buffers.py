"""The byte buffers this package takes; any of them can be hashed or decoded without a copy."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
