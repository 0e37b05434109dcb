"""Object keys of what belongs to a checkpoint beside its chunks. Each is written once: its name carries its content."""

from __future__ import annotations


def manifest_key(project_id: str, checkpoint_id: str, rank: int, body_digest: str) -> str:
    """Where one rank's encoded manifest is."""
    return f"{project_id}/manifests/{checkpoint_id}/{rank}.{body_digest[:16]}"


def index_key(project_id: str, checkpoint_id: str, index_digest: str) -> str:
    """Where the encoded index is."""
    return f"{project_id}/indexes/{checkpoint_id}/{index_digest[:16]}"
