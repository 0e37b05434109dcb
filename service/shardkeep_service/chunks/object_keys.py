"""Object keys of chunks: written once and never used again."""

from __future__ import annotations


def chunk_key(*, project_id: str, checkpoint_id: str, digest: str, upload: int) -> str:
    """The key of the `upload`-th upload of a digest in its project, which this checkpoint made."""
    return f"{project_id}/chunks/{digest[:2]}/{checkpoint_id}/{digest}.{upload}"
