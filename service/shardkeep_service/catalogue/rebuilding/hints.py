"""What the damaged record of a commit still says of where the checkpoint belongs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from shardkeep_service.blob_store.errors import BlobMissing
from shardkeep_service.catalogue import record_keys as keys
from shardkeep_service.catalogue.reading import read_object
from shardkeep_service.catalogue.rebuilding.newest import Source

_RUN: Final = re.compile(rb'"run_id":"(run_[0-9a-f]{32})"')
_ATTEMPT: Final = re.compile(rb'"attempt":\{"id":"(att_[0-9a-f]{32})"')
_NUMBERS: Final = re.compile(rb'"parent_id":[^,]{4,50},"number":(\d{1,15}),"sequence":\d{1,15},"save":(\d{1,15}),')


@dataclass(frozen=True, slots=True)
class Hint:
    """To be believed only as far as there are such a run and attempt."""

    run_id: str
    attempt_id: str
    number: int
    save: int


def find_hint(source: Source, project_id: str, checkpoint_id: str) -> Hint | None:
    """The hint of any of the checkpoint's records, which are all damaged; None where none can be made out."""
    for key, _, size_bytes in source.listing.records(project_id, keys.COMMITS, checkpoint_id):
        try:
            body = bytes(read_object(source.context.blob_store, key, size_bytes=size_bytes))
        except BlobMissing:
            continue
        run, attempt, numbers = _RUN.search(body), _ATTEMPT.search(body), _NUMBERS.search(body)
        if run and attempt and numbers:
            return Hint(run[1].decode(), attempt[1].decode(), int(numbers[1]), int(numbers[2]))
    return None
