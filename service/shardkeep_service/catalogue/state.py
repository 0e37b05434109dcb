"""What a catalogue knows of itself: its id, whether retention is paused, whether a rebuild has not ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import delete
from sqlalchemy.orm import Session

from shardkeep.protocol.identifiers import new_id
from shardkeep_service.catalogue.models import CatalogueFact
from shardkeep_service.database.session_time import session_now
from shardkeep_service.inserts import insert_if_absent

_IDENTITY: Final = "identity"
_RETENTION_PAUSED: Final = "retention_paused"
_REBUILD: Final = "rebuild_unfinished"
_PROBE: Final = "probe"


def catalogue_id(session: Session) -> str | None:
    """The id of this catalogue; None before its first start."""
    found = session.get(CatalogueFact, _IDENTITY)
    return None if found is None else str(found.value["id"])


def ensure_catalogue_id(session: Session) -> str:
    """The id of this catalogue, drawn now if it has none. Replicas that start together agree on one."""
    drawn = {"name": _IDENTITY, "value": {"id": new_id("cat")}, "set_at": session_now(session)}
    insert_if_absent(session, CatalogueFact, drawn)
    session.expire_all()
    found = catalogue_id(session)
    assert found is not None  # inserted, by us or by another
    return found


def retention_paused(session: Session) -> str | None:
    """Why retention deletes nothing for now; None when it may. A rebuild pauses it until an operator resumes it."""
    found = session.get(CatalogueFact, _RETENTION_PAUSED)
    return None if found is None else str(found.value["reason"])


def pause_retention(session: Session, reason: str) -> None:
    """Keeps retention from deleting anything until `resume_retention`."""
    _set(session, _RETENTION_PAUSED, {"reason": reason})


def resume_retention(session: Session) -> bool:
    """Lets retention delete again; whether it was paused."""
    return _unset(session, _RETENTION_PAUSED)


def rebuild_unfinished(session: Session) -> bool:
    """Whether a rebuild began here and has not ended: running it again goes on with it."""
    return session.get(CatalogueFact, _REBUILD) is not None


def begin_rebuild(session: Session) -> None:
    """Notes that what the database holds is not all yet."""
    _set(session, _REBUILD, {})


def end_rebuild(session: Session) -> None:
    """Notes that the rebuild is through."""
    _unset(session, _REBUILD)


def _set(session: Session, name: str, value: Mapping[str, Any]) -> None:
    found = session.get(CatalogueFact, name)
    if found is None:
        insert_if_absent(session, CatalogueFact, {"name": name, "value": dict(value), "set_at": session_now(session)})
        return
    found.value, found.set_at = dict(value), session_now(session)


def _unset(session: Session, name: str) -> bool:
    removed = delete(CatalogueFact).where(CatalogueFact.name == name).returning(CatalogueFact.name)
    return session.scalars(removed).first() is not None


def try_writing(session: Session) -> None:
    """Writes a fact and removes it again: for whoever asks whether the database takes writes."""
    _set(session, _PROBE, {})
    session.flush()
    _unset(session, _PROBE)
