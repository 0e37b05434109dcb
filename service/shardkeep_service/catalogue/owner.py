"""Whose a bucket is: one catalogue owns it, and a marker object in it says which.

Two databases over one bucket would collect each other's bytes. So the first start writes a marker with the catalogue's
id, every later start compares, and a rebuild into a new database takes the bucket over by a marker of the next term,
after which the old database is refused.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep_service.blob_store.blob_store import BlobStore
from shardkeep_service.blob_store.errors import BlobExists
from shardkeep_service.catalogue.reading import read_record
from shardkeep_service.catalogue.record_keys import OWNERS, owner_key
from shardkeep_service.catalogue.records import encode_record
from shardkeep_service.catalogue.state import catalogue_id, ensure_catalogue_id
from shardkeep_service.projects.models import Project
from shardkeep_service.service_context import ServiceContext

_PROJECTS: Final = "prj_"


class BucketRefused(Exception):
    """The bucket belongs to another catalogue, or nobody can say to which."""


class OwnerRecord(msgspec.Struct, frozen=True):
    """The catalogue that owns the bucket since its `term`."""

    catalogue_id: str
    term: int


def find_owner(blob_store: BlobStore) -> OwnerRecord | None:
    """The owner of the bucket; None for a bucket nobody owns. FormatError when its marker is damaged."""
    last = None
    for last in blob_store.list(OWNERS):  # noqa: B007  (the last one counts)
        pass
    return None if last is None else read_record(blob_store, last.key, OwnerRecord, size_bytes=last.size_bytes)


def claim_bucket(context: ServiceContext) -> str:
    """Makes sure that this database's catalogue owns the bucket, and gives its id; else BucketRefused.

    A bucket without owner is claimed, unless the database is empty and the bucket is not: then it is a lost database's.
    """
    try:
        owner = find_owner(context.blob_store)
    except FormatError as exc:
        raise BucketRefused(
            f"the marker that says which catalogue owns the bucket is damaged ({exc}); if this database is the one that"
            " wrote the bucket, `shardkeep-service rebuild --add` claims it again"
        ) from exc
    with context.database.read() as session:
        own = catalogue_id(session)
        is_empty = _is_empty(session)
    if owner is None:
        if own is None and is_empty and next(iter(context.blob_store.list(_PROJECTS)), None) is not None:
            raise BucketRefused(
                "the bucket holds objects, and the database is empty: `shardkeep-service rebuild` makes the catalogue"
                " again from the bucket; give another bucket or prefix to begin an empty one"
            )
        return _claim(context, term=1)
    if owner.catalogue_id != own:
        raise BucketRefused(_of_another(owner, own))
    return owner.catalogue_id


def take_over_bucket(context: ServiceContext) -> str:
    """Makes this database's catalogue the owner, whoever was; gives its id. For rebuilds: the old database is refused
    from then on.
    """
    markers = [blob.key for blob in context.blob_store.list(OWNERS)]
    try:
        owner = find_owner(context.blob_store)
    except FormatError:
        owner = None
    with context.database.read() as session:
        own = catalogue_id(session)
    if owner is not None and owner.catalogue_id == own:
        return owner.catalogue_id
    return _claim(context, term=_term_of(markers[-1]) + 1 if markers else 1)


def _claim(context: ServiceContext, *, term: int) -> str:
    with context.database.write() as session:
        own = ensure_catalogue_id(session)
    with contextlib.suppress(BlobExists):  # another was first; who it is, is read back
        context.blob_store.put(owner_key(term), encode_record(OwnerRecord(own, term)))
    owner = find_owner(context.blob_store)
    if owner is None or owner.catalogue_id != own:
        raise BucketRefused(_of_another(owner or OwnerRecord("unknown", term), own))
    return own


def _of_another(owner: OwnerRecord, own: str | None) -> str:
    whose = f"catalogue {own}" if own else "no catalogue yet"
    return (
        f"the bucket belongs to catalogue {owner.catalogue_id} (term {owner.term}) and this database to {whose}. Give"
        " the service the database that belongs to the bucket, or another bucket or prefix. If that database is lost:"
        " `shardkeep-service rebuild` with an empty one makes the catalogue again from the bucket and takes it over"
    )


def _is_empty(session: Session) -> bool:
    return session.scalars(select(Project.id).limit(1)).first() is None


def _term_of(key: str) -> int:
    return int(key.removeprefix(OWNERS).removesuffix(".json"))
