"""The first start: an admin token in a file only its owner can read, and the local token file that names the URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from shardkeep.protocol.local_token_file import is_private_file, write_local_token, write_private_file
from shardkeep_service.access import repository
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.secrets import token_hash
from shardkeep_service.access.service import create_token
from shardkeep_service.database.database import Database

ADMIN_TOKEN_FILE: Final = "admin-token.json"  # noqa: S105  (a file name)
_NAME: Final = "first admin"


def publish_admin_token(database: Database, *, data_dir: Path, url: str) -> None:
    """Makes sure that an admin token exists in `data_dir` and that local clients find it under this URL."""
    path = data_dir / ADMIN_TOKEN_FILE
    text = _usable_token(database, path) or _new_token(database)
    write_private_file(path, json.dumps({"url": url, "token": text}, indent=2).encode())
    write_local_token(url=url, token=text, data_dir=data_dir)


def _usable_token(database: Database, path: Path) -> str | None:
    if not is_private_file(path):
        return None
    text = str(json.loads(path.read_bytes())["token"])
    with database.read() as session:
        token = repository.token_by_hash(session, token_hash(text))
    usable = token is not None and token.revoked_at is None and token.scope == Scope.ADMIN
    return text if usable else None


def _new_token(database: Database) -> str:
    with database.write() as session:
        _, text = create_token(session, now=database.now(session), scope=Scope.ADMIN, name=_NAME)
    return text
