"""The OpenAPI description against a real service with real data: what it answers is documented, and never a 5xx.

Every operation gets requests that fit the description, requests that do not, and requests about things that exist. The
choice of requests is the same at every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from shardkeep.format.load_plan import LoadRequest, encode_load_request
from tests.integration.service.process_client import committed_checkpoint
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.slow

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "openapi.json"
SCHEMA: Final = schemathesis.openapi.from_path(DOCUMENT)
OPERATIONS: Final = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)}
EXAMPLES: Final = 16
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NO_WAITING: Final = {"wait_seconds": 0}
"""A long poll is one: it would wait as long as it was asked to."""


@dataclass(frozen=True)
class Place:
    """A service, and names of what exists in it."""

    service: ServiceProcess
    session: requests.Session
    names: dict[str, Any]
    bodies: dict[str, bytes]
    """Real bodies of the operations whose body is binary."""

    def probe(self, case: Case[Any]) -> None:
        case.call_and_validate(base_url=self.service.url, session=self.session, checks=list(CHECKS))

    def real(self, operation: APIOperation[Any, Any, Any, Any]) -> dict[str, Any]:
        """The path's parameters, so that it leads to something that exists."""
        by_id = {"project": self.names["project_id"], "run": self.names["run_id"]} if "-by-id" in operation.path else {}
        return {name: by_id.get(name, self.names[name]) for name in (found.name for found in operation.path_parameters)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ServiceProcess(tmp_path_factory.mktemp("openapi") / "service") as service, requests.Session() as session:
        session.headers["authorization"] = f"Bearer {service.token}"
        checkpoint, payload = committed_checkpoint(service)
        info = session.get(f"{service.url}/v1/checkpoints/{checkpoint}").json()
        token = session.post(f"{service.url}/v1/tokens", json={"name": "spare", "scope": "read"}).json()
        run = session.get(f"{service.url}/v1/projects/project/runs/committed").json()
        project = session.get(f"{service.url}/v1/projects/project").json()
        names = {
            "project_id": project["id"],
            "run_id": run["id"],
            "project": "project",
            "run": "committed",
            "checkpoint": checkpoint,
            "other": checkpoint,
            "attempt": info["attempt_id"],
            "digest": payload.ref.digest,
            "token": token["info"]["id"],
            "rank": 0,
            "layout": 0,
            "tag": "best",
        }
        bodies = {
            "POST /v1/checkpoints/{checkpoint}/load-plan": encode_load_request(LoadRequest.whole(["model.weight"])),
            "PUT /v1/checkpoints/{checkpoint}/chunks/{digest}": payload.data,
            "PUT /v1/checkpoints/{checkpoint}/manifests/{rank}": session.get(
                f"{service.url}/v1/checkpoints/{checkpoint}/manifests/0"
            ).content,
        }
        yield Place(service, session, names, bodies)
        assert "Traceback" not in service.log


def requests_for(operation: APIOperation[Any, Any, Any, Any], place: Place) -> st.SearchStrategy[Case[Any]]:
    query = NO_WAITING if any(parameter.name == "wait_seconds" for parameter in operation.query) else None
    kinds = [operation.as_strategy(query=query)]
    if len(operation.path_parameters):
        real = place.real(operation)
        kinds.append(operation.as_strategy(path_parameters=real, query=query))
        if operation.label in place.bodies:
            kinds.append(operation.as_strategy(path_parameters=real, query=query, body=place.bodies[operation.label]))
    if len(operation.path_parameters) or len(operation.query) or len(operation.body):
        kinds.append(operation.as_strategy(GenerationMode.NEGATIVE, query=query))
    return st.one_of(kinds)


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_answer_is_documented_and_no_server_error(label: str, place: Place) -> None:
    operation = OPERATIONS[label]

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=requests_for(operation, place))
    def probe(case: Case[Any]) -> None:
        place.probe(case)

    probe()
