"""Object keys of chunks: written once and never used again.

All chunks that a checkpoint brought lie under one prefix, so that one listing of it tells what arrived of a direct
upload; the two digits before it, of a random id, spread checkpoints over the partitions of an object store.
"""

from __future__ import annotations


def chunk_key(*, project_id: str, checkpoint_id: str, digest: str, upload: int) -> str:
    """The key of the `upload`-th upload of a digest in its project, which this checkpoint made."""
    return f"{chunk_prefix(project_id=project_id, checkpoint_id=checkpoint_id)}{digest}.{upload}"


def chunk_prefix(*, project_id: str, checkpoint_id: str) -> str:
    """What the keys of all chunks begin with that this checkpoint brought."""
    return f"{project_id}/chunks/{checkpoint_id[-2:]}/{checkpoint_id}/"
