"""Checkpoints that a restored backup knows and that were purged after it was made."""

from __future__ import annotations

from sqlalchemy import select

from shardkeep.protocol.messages import CheckpointState
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.commit_records import RECORDED
from shardkeep_service.catalogue.outbox import record_checkpoint
from shardkeep_service.catalogue.rebuilding.newest import Source
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from shardkeep_service.checkpoints.repository import lock_checkpoint
from shardkeep_service.runs.repository import lock_run


def settle_unrecorded(source: Source, project_id: str) -> None:
    """Looks at the known commits that have no record: purged since, or a record that is still to be written.

    A purge removes the record first and then the rest. So one without record whose manifests are all there is kept, and
    given a record; one that lacks any is purged.
    """
    query = select(Checkpoint.id).where(Checkpoint.project_id == project_id, Checkpoint.state.in_(RECORDED))
    with source.context.database.read() as session:
        known = session.scalars(query.order_by(Checkpoint.id)).all()
    for checkpoint_id in known:
        if not source.listing.records(project_id, keys.COMMITS, checkpoint_id):
            _settle(source, checkpoint_id)


def _settle(source: Source, checkpoint_id: str) -> None:
    listed = {key for _, key, _ in source.listing.manifests(checkpoint_id)}
    query = select(ManifestRow.object_key).where(ManifestRow.checkpoint_id == checkpoint_id)
    with source.context.database.write() as session:
        lock_run(session, session.get_one(Checkpoint, checkpoint_id).run_id)  # its sums change with the state
        row = lock_checkpoint(session, checkpoint_id)
        if set(session.scalars(query)) <= listed:
            record_checkpoint(session, checkpoint_id)
            return
        row.state, row.pinned, row.version = CheckpointState.PURGED.value, False, row.version + 1
    source.report.purged += 1
    source.report.tell(checkpoint_id, "it was purged after the backup of the database was made")
