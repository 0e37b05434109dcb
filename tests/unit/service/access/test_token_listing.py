"""The list of tokens of a project's administrator: whole, and found without reading those of all other projects."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, text

from shardkeep.protocol import routes
from shardkeep_service.access.models import Token, TokenProject
from shardkeep_service.projects.repository import project_named
from tests.unit.service.access.holders import Holder, first_admin
from tests.unit.service.access.query_plans import planned
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService

pytestmark = BOTH_DATABASES

PROJECTS = ("mine", "other", "third")
OTHERS_TOKENS = 3_000


@pytest.fixture
def admin(local: LocalService) -> Holder:
    for name in PROJECTS:
        local.ask("POST", routes.PROJECTS, {"name": name})
    return first_admin(local)


def names(holder: Holder) -> list[str]:
    return [token["name"] for token in holder.ask("GET", routes.TOKENS)["items"]]


def mint_for_another_project(service: LocalService) -> None:
    """As the jobs of years leave them."""
    with service.database.write() as session:
        project = project_named(session, "other")
        assert project is not None
        ids = [f"tok_{number:027d}" for number in range(OTHERS_TOKENS)]
        rows = [
            {"id": token_id, "name": "job", "hash": token_id, "prefix": "x", "scope": "write", "created_at": number}
            for number, token_id in enumerate(ids)
        ]
        session.execute(insert(Token), [{**row, "project_id": project.id} for row in rows])
        session.execute(insert(TokenProject), [{"token_id": token_id, "project_id": project.id} for token_id in ids])
        if not service.database.is_sqlite:
            session.execute(text("ANALYZE tokens, token_projects"))


def test_it_begins_with_the_project_however_many_tokens_others_have(local: LocalService, admin: Holder) -> None:
    owner = admin.make("admin", name="owner", projects=["mine"])
    owner.make("read", name="own")
    mint_for_another_project(local)
    owner.ask("GET", routes.TOKEN_SELF)
    with planned(local.database, "tokens") as plans:
        assert names(owner) == ["own", "owner"]
    assert any("ix_tokens_project_id_created_at_id" in plan for plan in plans), plans


def test_of_several_projects_each_token_is_listed_once_whichever_it_names_first(admin: Holder) -> None:
    owner = admin.make("admin", name="owner", projects=["mine", "other"])
    for number, projects in enumerate((["mine"], ["other"], ["mine", "other"], ["other", "mine"])):
        admin.make("read", name=f"n{number}", projects=projects)
    for number, projects in enumerate((["mine", "third"], ["third", "mine"], ["third"])):
        admin.make("read", name=f"beyond{number}", projects=projects)
    assert names(owner) == ["n3", "n2", "n1", "n0", "owner"]
