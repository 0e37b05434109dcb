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
from shardkeep_service.access.audit import OPERATOR, record
from shardkeep_service.access.grants import Grant
from shardkeep_service.access.scopes import Scope
from shardkeep_service.access.tokens import issue
from shardkeep_service.access.views import token_infos
from shardkeep_service.catalogue.outbox import record_project
from shardkeep_service.cli.exits import refuse
from shardkeep_service.cli.options import DataOption, settings_with
from shardkeep_service.database.database import Database
from shardkeep_service.database.errors import DatabaseFailed
from shardkeep_service.database.migrate import MigrationRefused, prepare_schema
from shardkeep_service.database.open_database import COMMAND_CONNECTIONS, open_database
from shardkeep_service.moments import micros
from shardkeep_service.projects.models import Project
from shardkeep_service.settings import Settings

tokens = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True)
_UNIT_SECONDS: Final = {"m": 60, "h": 3600, "d": 86_400}
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@tokens.command()
def create(
    scope: Annotated[Scope, typer.Option(help="metrics < read < write (saves too) < delete < admin.")],
    data: DataOption = None,
    project: Annotated[
        list[str] | None, typer.Option(help="A project it may see, made when it is new; may be repeated; else all.")
    ] = None,
    expires_in: Annotated[str | None, typer.Option(help="30d, 12h or 45m; default never.")] = None,
    name: Annotated[str, typer.Option(help="What it is for, to tell it apart in lists.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a token and print it as the last line. It is shown only here."""
    seconds = _seconds(expires_in) if expires_in else None
    for named in project or ():
        if not is_name(named):
            refuse(f"{named!r} cannot name a project")
    with _database(settings_with(data_dir=data)) as database, database.write() as session:
        now = database.now(session)
        project_ids = sorted({_project_id(session, named, now) for named in project or ()})
        grant = Grant(scope, tuple(project_ids), now + micros(seconds) if seconds else None)
        made = issue(session, OPERATOR, grant, now=now, name=name or f"{scope} token", token_id=None)
    typer.echo(f"token {made.info.id} of scope {scope}; it is not shown again", err=True)
    typer.echo(made.model_dump_json() if as_json else made.token)


@tokens.command(name="list")
def list_tokens(data: DataOption = None, as_json: JsonOption = False) -> None:
    """List all tokens, revoked ones too."""
    with _database(settings_with(data_dir=data)) as database, database.read() as session:
        shown = token_infos(session, repository.tokens(session))
    for info in shown:
        typer.echo(info.model_dump_json() if as_json else _line(info))


@tokens.command()
def revoke(token_id: Annotated[str, typer.Argument(help="tok_...")], data: DataOption = None) -> None:
    """Revoke a token and those it minted for jobs; a running service refuses them within a second."""
    with _database(settings_with(data_dir=data)) as database, database.write() as session:
        if repository.token_by_id(session, token_id) is None:
            refuse(f"there is no token {token_id}")
        if repository.revoke(session, token_id, database.now(session)):
            record(session, OPERATOR, "token.revoke", target=token_id)
    typer.echo(f"revoked {token_id}")


@contextlib.contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    if settings.is_embedded:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = open_database(settings, application="token", connections=COMMAND_CONNECTIONS)
    try:
        prepare_schema(database, migrate=settings.migrates_at_start)
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
        record_project(session, project.id)
    return project.id


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 30d, 12h or 45m")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def _line(info: TokenInfo) -> str:
    state = "revoked" if info.revoked_at else f"expires {info.expires_at:%Y-%m-%d}" if info.expires_at else "valid"
    reach = "all projects" if info.projects is None else ", ".join(info.projects)
    reach = f"{reach}/{info.run}" if info.run else reach
    return f"{info.id}  {info.prefix}...  {info.scope:7}  {reach}  {state}  {info.name}"
