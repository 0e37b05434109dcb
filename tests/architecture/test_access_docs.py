"""The description of the routes and the page about metrics are what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from shardkeep.protocol.error_codes import PROBLEM_CONTENT_TYPE
from shardkeep_service.access.default_deny import PUBLIC
from shardkeep_service.main import create_app
from shardkeep_service.observability.metrics import Metrics
from shardkeep_service.openapi_document import document_text
from shardkeep_service.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
MONITORING = (DOCS / "monitoring.md").read_text()


def families() -> set[str]:
    """Every family of ours, as a query names it."""
    found = {family.name: family.type for family in Metrics().registry.collect() if family.name.startswith("shardkeep")}
    suffixes = {"counter": "_total", "info": "_info"}
    return {f"{name}{suffixes.get(kind, '')}" for name, kind in found.items()}


def test_the_description_in_the_repository_is_current(tmp_path: Path) -> None:
    current = document_text(create_app(Settings(data_dir=tmp_path)))
    assert (DOCS / "openapi.json").read_text() == current, "write it: shardkeep-service openapi > docs/openapi.json"


def operations() -> dict[str, dict[str, Any]]:
    document = json.loads((DOCS / "openapi.json").read_text())
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


@pytest.mark.parametrize("label", sorted(operations()))
def test_every_operation_documents_its_body_its_scope_and_its_problems(label: str) -> None:
    operation = operations()[label]
    statuses = set(operation["responses"])
    assert statuses & {"200", "201", "202", "204"}
    if label not in ("GET /livez", "GET /readyz"):
        assert {"400", "401", "403", "500", "503"} <= statuses
    if tuple(label.split()) not in PUBLIC:
        assert operation["security"]
        assert operation["x-shardkeep-scope"]
    assert operation["operationId"]
    assert operation.get("summary")


def test_operation_ids_are_unique_and_problems_are_problem_documents() -> None:
    document = json.loads((DOCS / "openapi.json").read_text())
    ids = [operation["operationId"] for operation in operations().values()]
    assert len(set(ids)) == len(ids)
    for answer in document["components"]["responses"].values():
        assert set(answer["content"]) == {PROBLEM_CONTENT_TYPE}
    assert "HTTPValidationError" not in json.dumps(document)


def test_the_page_explains_every_metric_and_no_other() -> None:
    named = set(re.findall(r"shardkeep_[a-z_]*[a-z]", MONITORING))
    plain = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
    assert families() - plain == set()
    assert plain - families() == set()


def test_the_alerts_of_the_page_are_rules() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", MONITORING, re.DOTALL)
    rules = [rule for block in blocks if "alert:" in block for rule in yaml.safe_load(block)]
    assert len(rules) >= 5
    for rule in rules:
        assert rule["alert"].startswith("Shardkeep")
        assert re.search(r"shardkeep_[a-z_]+", rule["expr"])
