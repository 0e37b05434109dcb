"""Versions and fixed limits of the protocol."""

from typing import Final

PROTOCOL_VERSION: Final = 1
"""Counts incompatible changes of routes and messages; additive changes do not count."""

NEGOTIATE_LIMIT: Final = 1_000
"""Chunks in one negotiate request."""

LIST_LIMIT: Final = 200
"""Items in one page of a list."""

WAIT_SECONDS_LIMIT: Final = 30.0
"""The longest a long poll is held."""

METADATA_BYTES_LIMIT: Final = 64 * 1024
"""Metrics, labels and reasons of one request, as JSON."""

MANIFEST_BYTES_LIMIT: Final = 256 * 1024 * 1024
"""One encoded manifest."""
