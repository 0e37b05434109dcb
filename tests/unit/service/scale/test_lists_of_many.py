"""With 10,000 runs and 100,000 checkpoints no list fetches more than a page, in a number of queries that stays.

Run it with `-s` to see the times.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from shardkeep.protocol import routes
from shardkeep_service.checkpoints.save_times import CELLS_LIMIT, COLUMNS_LIMIT
from shardkeep_service.overview.service import REMEMBERED_SECONDS
from tests.servers.filled_catalogue import Catalogue, fill
from tests.servers.migrated_databases import MigratedDatabases
from tests.unit.service.databases import POSTGRESQL, SQLITE
from tests.unit.service.fetched_rows import Fetched, counted, plan_of
from tests.unit.service.local_service import LocalService

SMALL, LARGE = 10, 200
RUNS, CHECKPOINTS = 10_000, 100_000
QUERIES_LIMIT: Final = 14
"""Of one list, whatever its page; the overview has one for each of its sums."""
SPARE_ROWS: Final = 1
"""The row after the page, by which a list knows that there is more."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A service over a filled catalogue."""

    service: LocalService
    catalogue: Catalogue


@dataclass(frozen=True, slots=True)
class Asked:
    """A list, and how many rows each of its items may stand for."""

    template: str
    query: dict[str, Any] = field(default_factory=dict)
    longest_page: int = LARGE
    cells: int = 0
    """Rows of one statement that a page may hold beside its items."""

    @property
    def name(self) -> str:
        return f"{self.template.removeprefix('/v1/')} " + " ".join(
            f"{key}={value}" for key, value in self.query.items()
        )


@pytest.fixture(scope="module", params=[SQLITE, POSTGRESQL])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A tenth of it on PostgreSQL, where rows take longer to write and indexes are the same."""
    directory = tmp_path_factory.mktemp("scale")
    if request.param == SQLITE:
        with _service(directory, None, fill(directory / "shardkeep.db", runs=RUNS, checkpoints=CHECKPOINTS)) as filled:
            yield filled
        return
    databases: MigratedDatabases = request.getfixturevalue("migrated_databases")
    with databases.database() as url:
        catalogue = fill(url, runs=RUNS // 10, checkpoints=CHECKPOINTS // 10)
        with _service(directory, url, catalogue) as filled:
            yield filled


@contextlib.contextmanager
def _service(directory: Path, url: str | None, catalogue: Catalogue) -> Iterator[Filled]:
    with LocalService(directory, database_url=url) as service:
        yield Filled(service, catalogue)


def lists(catalogue: Catalogue) -> Iterator[Asked]:
    """Every list of the database's rows, in every order and with every filter that has a plan of its own."""
    project, of_project = catalogue.projects[1], {"project": catalogue.projects[1]}
    for sort in ("name", "created", "last_step", "last_committed", "stored_bytes"):
        for order in ("asc", "desc"):
            yield Asked(routes.ALL_RUNS, {"sort": sort, "order": order})
    for state in ("new", "saving", "idle", "deleted"):
        yield Asked(routes.ALL_RUNS, {"state": state})
        yield Asked(routes.ALL_RUNS, {"state": state, "sort": "name", **of_project})
    for search in ("SFT", f"{project}/", "nobody-has-this", "%"):
        yield Asked(routes.ALL_RUNS, {"search": search})
    yield Asked(routes.RUNS)
    yield Asked(routes.RUNS, {"deleted": True})
    yield Asked(routes.PROJECTS)
    yield Asked(routes.RUN_ATTEMPTS)
    yield Asked(routes.RUN_SAVE_TIMES, longest_page=COLUMNS_LIMIT, cells=CELLS_LIMIT)
    for narrowed in (
        {}, {"state": "committed"}, {"state": "aborted"}, {"state": "deleted"}, {"pinned": True}, {"pinned": False},
        {"tag": "best"}, {"step": 100}, {"step_min": 5000, "step_max": 900_000},
    ):  # fmt: skip
        yield Asked(routes.RUN_CHECKPOINTS, narrowed)
        yield Asked(routes.CHECKPOINTS, narrowed)
        yield Asked(routes.CHECKPOINTS, {**narrowed, **of_project})
    for on_line in (True, False):
        yield Asked(routes.RUN_CHECKPOINTS, {"on_line": on_line})
    yield Asked(routes.SAVES)
    yield Asked(routes.SAVES, of_project)
    for wanted in ({}, {"living": True}, of_project):
        yield Asked(routes.TOKENS, wanted)
    token = {"actor": "nobody"}
    for wanted in ({}, of_project, {"action": "run.create"}, {"action": "token"}, {"target": "nothing"}, token):
        yield Asked(routes.AUDIT, wanted)
    for resolved in (False, True):
        yield Asked(routes.FINDINGS, {"resolved": resolved})
    yield Asked(routes.FINDINGS, {"checkpoint": catalogue.saving[0]})


def ask(filled: Filled, asked: Asked, **page: Any) -> tuple[dict[str, Any], Fetched, float]:
    """The answer, what was fetched for it, and how long it took in milliseconds."""
    catalogue, service = filled.catalogue, filled.service
    path = routes.path(asked.template, project=catalogue.long_project, run=catalogue.long_run)
    with counted(service.database) as fetched:
        began = time.perf_counter()
        answer = service.ask("GET", path, query={**asked.query, **page})
        milliseconds = (time.perf_counter() - began) * 1_000
    return answer, fetched, milliseconds


def faults_of(asked: Asked, answer: dict[str, Any], fetched: Fetched, *, size: int) -> Iterator[str]:
    """What is wrong with one page."""
    allowed = max(min(size, asked.longest_page) + SPARE_ROWS, asked.cells)
    if not fetched.statements:
        yield f"{asked.name}: nothing was counted"
    if len(answer["items"]) > size:
        yield f"{asked.name}: {len(answer['items'])} items of at most {size}"
    if fetched.most > allowed:
        yield f"{asked.name}: {fetched.most} rows, at most {allowed}: {fetched.widest}"
    if len(fetched.statements) > QUERIES_LIMIT:
        yield f"{asked.name}: {len(fetched.statements)} queries: {fetched.statements}"


def test_no_list_fetches_more_than_a_page_and_the_number_of_queries_stays(filled: Filled) -> None:
    faults: list[str] = []
    for asked in lists(filled.catalogue):
        _, small, _ = ask(filled, asked, limit=SMALL)
        first, large, milliseconds = ask(filled, asked, limit=LARGE)
        faults.extend(faults_of(asked, first, large, size=LARGE))
        # A second query where what has no value to sort by comes into the page.
        if abs(len(small.statements) - len(large.statements)) > 1:
            faults.append(
                f"{asked.name}: {len(small.statements)} queries for {SMALL}, {len(large.statements)} for more"
            )
        next_milliseconds = 0.0
        if first["next_cursor"] is not None:
            second, fetched, next_milliseconds = ask(filled, asked, limit=LARGE, cursor=first["next_cursor"])
            faults.extend(faults_of(asked, second, fetched, size=LARGE))
            keys = [_keys(answer) for answer in (first, second)]
            if keys[0] & keys[1]:
                faults.append(f"{asked.name}: the second page repeats some of the first")
        print(
            f"{asked.name:75} {len(first['items']):4} items {sum(large.rows):6} rows {len(large.rows):3} queries"
            f" {milliseconds:8.1f} ms, the next page {next_milliseconds:8.1f} ms"
        )
    assert faults == []


def test_what_few_rows_are_about_is_read_by_an_index_that_holds_no_others(filled: Filled) -> None:
    """However many there are of the others: of other targets, purged checkpoints, other findings, verified chunks."""
    wanted = (
        (Asked(routes.AUDIT, {"target": "nothing"}), "FROM audit_log", r"\bix_audit_log_target_id\b"),
        (Asked(routes.RUN_SAVE_TIMES), "checkpoints.committed_at", r"\bix_checkpoints_run_id_number_kept\b"),
        (
            Asked(routes.FINDINGS, {"checkpoint": filled.catalogue.saving[0]}),
            "FROM integrity_findings",
            r"\b(pk|sqlite_autoindex)_finding_checkpoints",
        ),
        (Asked(routes.OVERVIEW, {"window_hours": 3}), "sum(chunks.size_bytes)", r"\bix_chunks_declared\b"),
    )
    for asked, part, index in wanted:
        _, fetched, _ = ask(filled, asked)
        plan = plan_of(filled.service.database, fetched, part)
        assert re.search(index, plan), f"{asked.name}: {plan}"
        assert not re.search(r"\bSCAN\b|TEMP B-TREE|Seq Scan|\bSort\b", plan), f"{asked.name}: {plan}"


def test_the_list_of_lists_is_complete(filled: Filled) -> None:
    """What is read from objects of one checkpoint is paged too, and tested with them."""
    paths = filled.service.ask("GET", "/v1/openapi.json")["paths"]
    paged = {
        path
        for path, methods in paths.items()
        for parameter in methods.get("get", {}).get("parameters", [])
        if parameter["name"] == "cursor"
    }
    of_one_checkpoint = {routes.RANKS, routes.TENSORS, routes.SLICES, routes.VALUES, routes.DIFFERENCES}
    assert paged - of_one_checkpoint == {asked.template for asked in lists(filled.catalogue)}


def test_the_overview_sums_up_in_the_database_and_is_remembered(filled: Filled) -> None:
    for hours in (1, 168, 8_760):
        asked = Asked(routes.OVERVIEW, {"window_hours": hours})
        filled.service.advance(REMEMBERED_SECONDS + 1)
        answer, fetched, milliseconds = ask(filled, asked)
        assert fetched.most <= len(answer["saves"]) <= 400
        assert len(fetched.statements) <= QUERIES_LIMIT
        again, remembered, again_milliseconds = ask(filled, asked)
        assert again == answer
        assert not [statement for statement in remembered.statements if "count(" in statement]
        print(f"{asked.name:75} {sum(fetched.rows):6} rows {milliseconds:8.1f} ms, again {again_milliseconds:8.1f} ms")


def test_every_run_is_in_exactly_one_page_whatever_the_order(filled: Filled) -> None:
    for sort in ("name", "created", "last_step", "last_committed", "stored_bytes"):
        for order in ("asc", "desc"):
            seen: list[str] = []
            cursor: dict[str, str] = {}
            while True:
                query = {
                    "sort": sort,
                    "order": order,
                    "limit": LARGE,
                    "project": filled.catalogue.projects[1],
                    **cursor,
                }
                answer = filled.service.ask("GET", routes.ALL_RUNS, query=query)
                seen.extend(run["id"] for run in answer["items"])
                if answer["next_cursor"] is None:
                    break
                cursor = {"cursor": answer["next_cursor"]}
            assert len(seen) == len(set(seen))
            assert len(seen) == filled.service.ask("GET", routes.OVERVIEW, query={"project": query["project"]})["runs"]


def _keys(answer: dict[str, Any]) -> set[Any]:
    return {item.get("id") or item.get("checkpoint_id") or item["checkpoint"]["id"] for item in answer["items"]}
