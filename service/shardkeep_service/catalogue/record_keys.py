"""Object keys of records. Each is written once: it carries the version of what it keeps.

All records of one checkpoint lie beside each other, so that one listing gives them, the newest last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

OWNERS: Final = "catalogue/owner."
PROJECTS: Final = "catalogue/projects/"
COMMITS: Final = "commits"
OPENS: Final = "opens"
RUNS: Final = "runs"
ATTEMPTS: Final = "attempts"
MANIFESTS: Final = "manifests"
INDEXES: Final = "indexes"
CHUNKS: Final = "chunks"

_RECORD: Final = re.compile(r"(?:.*/)?([a-z]{3}_[0-9a-f]{32})(?:\.(\d{1,18}))?\.json")
_CHUNK: Final = re.compile(r"(prj_[0-9a-f]{32})/chunks/[0-9a-f]{2}/(ckp_[0-9a-f]{32})/([0-9a-f]{64})\.(\d{1,9})")
_MANIFEST: Final = re.compile(r"prj_[0-9a-f]{32}/manifests/(ckp_[0-9a-f]{32})/(\d{1,7})\.[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class RecordKey:
    """A record's key taken apart. Records of the first version carry none: 0."""

    key: str
    subject_id: str
    version: int


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """A chunk's key taken apart: the checkpoint that brought it, its digest, and the count of its uploads."""

    key: str
    checkpoint_id: str
    digest: str
    upload: int


def owner_key(term: int) -> str:
    """Where the `term`-th owner of the bucket says so."""
    return f"{OWNERS}{term:06d}.json"


def project_record_key(project_id: str, version: int) -> str:
    """Where a project is kept. Outside the project's own prefix: so the projects of a bucket can be listed."""
    return f"{PROJECTS}{project_id}.{version:017d}.json"


def run_record_key(project_id: str, run_id: str, version: int) -> str:
    """Where a run is kept."""
    return f"{project_id}/{RUNS}/{run_id}.{version:017d}.json"


def attempt_record_key(project_id: str, attempt_id: str, version: int) -> str:
    """Where an attempt is kept: version 1 as it began, 2 as it decided."""
    return f"{project_id}/{ATTEMPTS}/{attempt_id}.{version}.json"


def open_record_key(project_id: str, checkpoint_id: str) -> str:
    """Where a checkpoint is kept while it is unfinished."""
    return f"{project_id}/{OPENS}/{checkpoint_id}.json"


def commit_record_key(project_id: str, checkpoint_id: str, version: int) -> str:
    """Where a committed checkpoint is kept at one version."""
    return f"{commit_records_prefix(project_id, checkpoint_id)}{version:08d}.json"


def commit_records_prefix(project_id: str, checkpoint_id: str) -> str:
    """What the keys of all records of a committed checkpoint begin with."""
    return f"{project_id}/{COMMITS}/{checkpoint_id}."


def parse_record_key(key: str) -> RecordKey | None:
    """The parts of a record's key; None for anything else."""
    match = _RECORD.fullmatch(key)
    return None if match is None else RecordKey(key, match[1], int(match[2] or 0))


def parse_chunk_key(key: str) -> ChunkKey | None:
    """The parts of a chunk's key; None for anything else."""
    match = _CHUNK.fullmatch(key)
    return None if match is None else ChunkKey(key, match[2], match[3], int(match[4]))


def parse_manifest_key(key: str) -> tuple[str, int] | None:
    """Checkpoint and rank of a manifest's key; None for anything else."""
    match = _MANIFEST.fullmatch(key)
    return None if match is None else (match[1], int(match[2]))
