"""Metrics: Prometheus' conventions, bounded labels, and who may read them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from shardkeep_service.access.scopes import Scope
from shardkeep_service.observability.metrics import Metrics
from tests.unit.service.local_service import LocalService

LABELS = frozenset(
    {"method", "route", "status", "code", "answer", "way", "outcome", "operation", "result", "task", "state", "kind"}
)
UNITS = ("_total", "_seconds", "_bytes", "_info", "_ratio")
COUNTS = ("_in_progress", "_connections", "_candidates", "_findings", "_stopped", "_entries", "_chunks")
"""Gauges of how many there are, whose unit is the noun."""


def own_families(metrics: Metrics) -> list[Metric]:
    return [family for family in metrics.registry.collect() if family.name.startswith("shardkeep_")]


def scraped(local: LocalService) -> dict[str, Metric]:
    answer = local.send("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {family.name: family for family in text_string_to_metric_families(answer.content.decode())}


def test_names_have_the_prefix_and_end_in_a_base_unit() -> None:
    for family in own_families(Metrics()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        name = f"{name}_info" if family.type == "info" else name
        assert re.fullmatch(r"shardkeep_[a-z_]+", name)
        assert name.endswith(UNITS + COUNTS), name
        assert family.documentation.endswith("."), name


def test_only_bounded_words_are_labels() -> None:
    metrics = Metrics()
    for family in vars(metrics).values():
        assert set(getattr(family, "_labelnames", ())) <= LABELS


def test_two_applications_share_no_metrics() -> None:
    first, second = Metrics(), Metrics()
    first.requests.labels("GET", "/x", 200).inc()
    assert b'route="/x"' in first.text()
    assert b'route="/x"' not in second.text()


def test_requests_are_counted_by_template_and_invented_paths_and_methods_together(local: LocalService) -> None:
    for name in ("a", "b", "c"):
        local.send("GET", f"/v1/projects/{name}")
        local.send("GET", f"/invented/{name}")
        local.send(f"BREW{name}".upper(), "/v1/projects")
    counted = {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"]): sample.value
        for sample in scraped(local)["shardkeep_http_requests"].samples
        if sample.name.endswith("_total")
    }
    assert counted["GET", "/v1/projects/{project}", "404"] == 3
    assert counted["GET", "none", "404"] == 3
    assert not [labels for labels in counted if "invented" in labels[1] or "BREW" in labels[0]]


@pytest.mark.parametrize(
    ("scope", "project", "status"),
    [
        (Scope.METRICS, None, 200),
        (Scope.READ, None, 200),
        (Scope.ADMIN, None, 200),
        (Scope.METRICS, "mine", 403),
        (Scope.ADMIN, "mine", 403),
    ],
)
def test_metrics_are_read_with_a_token_that_sees_every_project(
    local: LocalService, scope: Scope, project: str | None, status: int
) -> None:
    local.ask("POST", "/v1/projects", {"name": "mine"})
    headers = {"authorization": f"Bearer {local.new_token(scope, project=project)}"}
    assert local.send("GET", "/metrics", headers=headers).status == status


def test_a_metrics_token_reads_nothing_else(local: LocalService) -> None:
    headers = {"authorization": f"Bearer {local.new_token(Scope.METRICS)}"}
    assert local.ask("GET", "/v1/tokens/self", headers=headers)["scope"] == "metrics"
    for path in ("/v1/projects", "/v1/checkpoints", "/v1/capabilities", "/v1/openapi.json"):
        local.refused("scope_too_narrow", "GET", path, headers=headers)


def test_metrics_need_a_token_unless_they_are_public(local: LocalService, tmp_path: Path) -> None:
    nobody = {"authorization": ""}
    local.refused("token_missing", "GET", "/metrics", headers=nobody)
    with LocalService(tmp_path / "public", metrics_public=True) as public:
        assert public.send("GET", "/metrics", headers=nobody).status == 200
        public.refused("token_missing", "GET", "/v1/projects", headers=nobody)
