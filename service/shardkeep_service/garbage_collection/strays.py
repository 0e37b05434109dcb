"""Strays: objects that no row names, left by a crash between an object and its row, or put when all was over.

Looked for by listing each project's prefix, page by page. One goes when a pass finds it unnamed whose checkpoint is
finished, and an earlier pass, a grace before, found the same. Until then something under way might still name it: rows
name objects of a checkpoint only while that is unfinished, in transactions that are shorter than the grace.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from shardkeep_service.blob_store.blob_store import BlobInfo
from shardkeep_service.catalogue.record_keys import CHUNKS, INDEXES, MANIFESTS, parse_chunk_key
from shardkeep_service.catalogue.state import rebuild_unfinished
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.chunks.models import Chunk
from shardkeep_service.garbage_collection.horizon import grace_horizon
from shardkeep_service.garbage_collection.models import StraySighting
from shardkeep_service.garbage_collection.progress import Progress
from shardkeep_service.projects.models import Project
from shardkeep_service.runs.lines import UNFINISHED
from shardkeep_service.service_context import ServiceContext

KINDS: Final = (CHUNKS, INDEXES, MANIFESTS)
"""What is looked through, in this order. Anything else in the bucket is not collection's to remove."""
_PAGE: Final = 500
_OF_CHECKPOINT: Final = re.compile(r"prj_[0-9a-f]{32}/(?:indexes|manifests)/(ckp_[0-9a-f]{32})/[0-9a-f.]+")


@dataclass(frozen=True, slots=True)
class _Found:
    """An object whose key says which checkpoint brought it."""

    blob: BlobInfo
    checkpoint_id: str


def look_for_strays(context: ServiceContext, progress: Progress) -> Iterator[int]:
    """Goes through the bucket from where the pass is; keeps that place in `progress`. Yields the objects handled."""
    while (project_id := _next_project(context, progress)) is not None:
        for kind in KINDS[KINDS.index(progress.place.get("kind", KINDS[0])) :]:
            progress.place["kind"] = kind
            yield from _look_through(context, progress, project_id, kind)
            progress.place["after"] = ""
        _forget_gone(context, progress, project_id)
        progress.place = {"project": project_id, "done": True}
        yield 0


def _next_project(context: ServiceContext, progress: Progress) -> str | None:
    """The project that the pass is in, or the one after it; projects that are deleted too."""
    current = str(progress.place.get("project", ""))
    if current and not progress.place.get("done"):
        return current
    with context.database.read() as session:
        following = session.scalars(
            select(Project.id).where(Project.id > current).order_by(Project.id).limit(1)
        ).first()
    if following is not None:
        progress.place = {"project": following}
    return following


def _look_through(context: ServiceContext, progress: Progress, project_id: str, kind: str) -> Iterator[int]:
    blobs = context.blob_store.list(f"{project_id}/{kind}/", after=str(progress.place.get("after", "")))
    while page := list(islice(blobs, _PAGE)):
        progress.tally.listed_objects += len(page)
        yield len(page)
        strays = _unnamed(context, project_id, page)
        yield 0
        due = _note_sightings(context, progress, project_id, strays)
        yield 0
        yield from _remove(context, progress, due)
        progress.place["after"] = page[-1].key


def _unnamed(context: ServiceContext, project_id: str, page: Sequence[BlobInfo]) -> list[BlobInfo]:
    """Those of finished checkpoints that no row names."""
    found = [placed for blob in page if (placed := _placed(blob)) is not None]
    with context.database.read() as session:
        if rebuild_unfinished(session):
            return []
        unfinished = _unfinished(session, {placed.checkpoint_id for placed in found})
        named = _named(session, project_id, found)
    return [placed.blob for placed in found if placed.checkpoint_id not in unfinished and placed.blob.key not in named]


def _placed(blob: BlobInfo) -> _Found | None:
    chunk = parse_chunk_key(blob.key)
    if chunk is not None:
        return _Found(blob, chunk.checkpoint_id)
    match = _OF_CHECKPOINT.fullmatch(blob.key)
    return None if match is None else _Found(blob, match[1])


def _unfinished(session: Session, checkpoint_ids: Collection[str]) -> set[str]:
    query = select(Checkpoint.id).where(Checkpoint.id.in_(checkpoint_ids), Checkpoint.state.in_(UNFINISHED))
    return set(session.scalars(query))


def _named(session: Session, project_id: str, found: Sequence[_Found]) -> set[str]:
    """The keys among these that a row names."""
    digests = {chunk.digest for placed in found if (chunk := parse_chunk_key(placed.blob.key)) is not None}
    of_checkpoints = {placed.checkpoint_id for placed in found if parse_chunk_key(placed.blob.key) is None}
    chunks = select(Chunk.object_key).where(Chunk.project_id == project_id, Chunk.digest.in_(digests))
    manifests = select(ManifestRow.object_key).where(ManifestRow.checkpoint_id.in_(of_checkpoints))
    indexes = select(Checkpoint.index_key).where(Checkpoint.id.in_(of_checkpoints), Checkpoint.purged_at.is_(None))
    return {
        key
        for query, wanted in ((chunks, digests), (manifests, of_checkpoints), (indexes, of_checkpoints))
        if wanted
        for key in session.scalars(query)
        if key is not None
    }


def _note_sightings(
    context: ServiceContext, progress: Progress, project_id: str, strays: Sequence[BlobInfo]
) -> list[BlobInfo]:
    """Notes that they were seen; gives those that an earlier pass saw a grace ago."""
    if not strays:
        return []
    keys = [stray.key for stray in strays]
    with context.database.write() as session:
        now = context.database.now(session)
        sightings = session.scalars(select(StraySighting).where(StraySighting.object_key.in_(keys)))
        seen = {row.object_key: row for row in sightings}
        horizon = grace_horizon(context.settings, now)
        due = [
            stray
            for stray in strays
            if (row := seen.get(stray.key)) is not None
            and row.last_pass < progress.number
            and row.first_seen_at < horizon
        ]
        session.execute(
            update(StraySighting)
            .where(StraySighting.object_key.in_(seen.keys() - {stray.key for stray in due}))
            .values(last_pass=progress.number),
            execution_options={"synchronize_session": False},
        )
        new = [stray for stray in strays if stray.key not in seen]
        session.add_all(
            StraySighting(
                object_key=stray.key,
                project_id=project_id,
                first_seen_at=now,
                last_pass=progress.number,
                size_bytes=stray.size_bytes,
            )
            for stray in new
        )
    progress.tally.new_strays += len(new)
    return due


def _remove(context: ServiceContext, progress: Progress, due: Sequence[BlobInfo]) -> Iterator[int]:
    if not due:
        return
    keys = [stray.key for stray in due]
    context.blob_store.delete(keys)
    yield len(keys)
    with context.database.write() as session:
        session.execute(delete(StraySighting).where(StraySighting.object_key.in_(keys)))
    size_bytes = sum(stray.size_bytes for stray in due)
    progress.tally.removed_strays += len(due)
    progress.tally.removed_stray_bytes += size_bytes
    context.metrics.collected_objects.labels("stray").inc(len(due))
    context.metrics.collected_bytes.inc(size_bytes)
    yield 0


def _forget_gone(context: ServiceContext, progress: Progress, project_id: str) -> None:
    """Forgets what was seen before and not in this pass: it is gone, or named, so a next sighting is a first one."""
    with context.database.write() as session:
        session.execute(
            delete(StraySighting).where(
                StraySighting.project_id == project_id, StraySighting.last_pass < progress.number
            )
        )
