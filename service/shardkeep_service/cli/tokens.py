"""`token`: make, list and revoke tokens, straight in the database: it needs the data directory, not a token."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Annotated, Final

import typer
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.protocol.identifiers import is_name, new_id
from shardkeep.protocol.messages import TokenInfo
from shardkeep_service.access import repository
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.service import create_token
from shardkeep_service.access.views import token_info
from shardkeep_service.cli.exits import refuse
from shardkeep_service.cli.options import DataOption, settings_with
from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, upgrade
from shardkeep_service.projects.models import Project
from shardkeep_service.settings import Settings

tokens = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True)
_UNIT_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400}
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@tokens.command()
def create(
    scope: Annotated[Scope, typer.Option(help="read, write (also saves) or admin.")],
    data: DataOption = None,
    project: Annotated[str | None, typer.Option(help="The only project it may see; made when it is new.")] = None,
    expires_in: Annotated[str | None, typer.Option(help="30d, 12h or 45m; default never.")] = None,
    name: Annotated[str, typer.Option(help="What it is for, to tell it apart in lists.")] = "",
) -> None:
    """Make a token and print it as the last line. It is shown only here."""
    seconds = _seconds(expires_in) if expires_in else None
    if project is not None and not is_name(project):
        refuse(f"{project!r} cannot name a project")
    with _database(settings_with(data_dir=data)) as database, database.write() as session:
        now = database.now(session)
        token, text = create_token(
            session,
            now=now,
            scope=scope,
            name=name or f"{scope} token",
            project_id=_project_id(session, project, now) if project else None,
            expires_at=now + seconds * 1_000_000 if seconds else None,
        )
        typer.echo(f"token {token.id} of scope {scope}; it is not shown again", err=True)
    typer.echo(text)


@tokens.command(name="list")
def list_tokens(data: DataOption = None, as_json: JsonOption = False) -> None:
    """List all tokens, revoked ones too."""
    with _database(settings_with(data_dir=data)) as database, database.read() as session:
        names = {project.id: project.name for project in session.scalars(select(Project))}
        shown = [
            token_info(token, project_name=names.get(token.project_id or "")) for token in repository.tokens(session)
        ]
    for info in shown:
        typer.echo(info.model_dump_json() if as_json else _line(info))


@tokens.command()
def revoke(token_id: Annotated[str, typer.Argument(help="tok_...")], data: DataOption = None) -> None:
    """Revoke a token; a running service refuses it within a second."""
    with _database(settings_with(data_dir=data)) as database, database.write() as session:
        if repository.token_by_id(session, token_id) is None:
            refuse(f"there is no token {token_id}")
        repository.revoke(session, token_id, database.now(session))
    typer.echo(f"revoked {token_id}")


@contextlib.contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = Database(settings.resolved_database_url, pool_size=1)
    try:
        upgrade(database)
        yield database
    except (MigrationRefused, DatabaseFailed) as error:
        refuse(str(error))
    finally:
        database.close()


def _project_id(session: Session, name: str, now: int) -> str:
    project = session.scalars(select(Project).where(Project.name == name)).one_or_none()
    if project is None:
        project = Project(id=new_id("prj"), name=name, created_at=now)
        session.add(project)
        session.flush()
    return project.id


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30d, 12h or 45m")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def _line(info: TokenInfo) -> str:
    state = "revoked" if info.revoked_at else f"expires {info.expires_at:%Y-%m-%d}" if info.expires_at else "valid"
    return f"{info.id}  {info.prefix}...  {info.scope:5}  {info.project or 'all projects'}  {state}  {info.name}"
