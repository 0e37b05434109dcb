"""The version of the stored format; what each version means is in docs/format.md."""

from __future__ import annotations

FORMAT_VERSION = 1
"""Written into every container. A reader refuses a higher one with `VersionTooNew`."""
