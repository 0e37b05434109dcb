"""The newest record of a subject that can be read: a damaged one is told of and the version before it taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from shardkeep.errors import FormatError
from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue.reading import read_object
from shardkeep_service.catalogue.rebuilding.listing import BucketListing
from shardkeep_service.catalogue.rebuilding.report import RebuildReport
from shardkeep_service.catalogue.records import OriginRecord, decode_any_record
from shardkeep_service.service_context import ServiceContext

AnyRecord = TypeVar("AnyRecord", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Source:
    """What a rebuild reads from, and where it tells what it finds."""

    context: ServiceContext
    listing: BucketListing
    report: RebuildReport
    parents: list[tuple[str, str]] = field(default_factory=list)
    """Checkpoints whose parent was not there yet when they were restored, with its id."""
    origins: dict[str, OriginRecord] = field(default_factory=dict)
    """What attempts resumed from, by checkpoint id."""

    def newest(self, project_id: str, kind: str, subject_id: str, record: type[AnyRecord]) -> AnyRecord | None:
        """The newest intact record of a subject; None where there is none."""
        for key, _, size_bytes in self.listing.records(project_id, kind, subject_id):
            try:
                return decode_any_record(read_object(self.context.blob_store, key, size_bytes=size_bytes), record)
            except (FormatError, BlobMissing) as exc:
                self.report.tell(key, f"the record cannot be read and is passed over: {exc}")
        return None
