"""Checks of the Kubernetes examples against the code and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from shardkeep_service.settings import ENVIRONMENT_PREFIX, Settings
from tests.architecture.deployment.facts import Facts
from tests.architecture.deployment.image_checks import (
    problems_of_command,
    problems_of_image,
    problems_of_route,
    problems_of_settings,
    problems_of_user,
)

Document = dict[str, Any]


def problems_of_manifests(texts: Mapping[str, str], port: int, facts: Facts) -> list[str]:
    """`texts` are the manifests by file name."""
    documents = [document for text in texts.values() for document in yaml.safe_load_all(text)]
    found: list[str] = []
    for document in documents:
        check = _CHECKS.get(document["kind"])
        if check is None:
            found.append(f"nothing checks a {document['kind']}")
            continue
        name = f"{document['kind']} {document['metadata']['name']}"
        found += [f"{name}: {problem}" for problem in check(document, documents, port, facts)]
    return found


def _pods(document: Document, documents: list[Document], port: int, facts: Facts) -> Iterator[str]:
    template = document["spec"]["template"]
    spec = template["spec"]
    security = spec.get("securityContext", {})
    yield from problems_of_user("the pod", security.get("runAsUser"))
    if not security.get("runAsNonRoot"):
        yield "the pod may run as root"
    if document["kind"] == "Deployment":
        selected = document["spec"]["selector"]["matchLabels"].items()
        if not selected <= template["metadata"]["labels"].items():
            yield "it does not select its own pods"
        yield from _grace(spec, documents)
    for container in spec["containers"]:
        yield from _container(container, documents, port, facts)


def _grace(spec: Document, documents: list[Document]) -> Iterator[str]:
    default = Settings.model_fields["shutdown_seconds"].default
    drain = float(_settings(documents).get(f"{ENVIRONMENT_PREFIX}SHUTDOWN_SECONDS", default))
    pause = max(
        container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        for container in spec["containers"]
    )
    grace = spec.get("terminationGracePeriodSeconds", 30)
    if grace <= drain + pause:
        yield f"it is killed after {grace} s, while it may take {drain + pause:g} s to end"


def _container(container: Document, documents: list[Document], port: int, facts: Facts) -> Iterator[str]:
    yield from problems_of_image(container["image"], facts)
    yield from problems_of_command(container["args"], facts)
    security = container.get("securityContext", {})
    if not security.get("readOnlyRootFilesystem") or security.get("allowPrivilegeEscalation") is not False:
        yield "the container may write its root file system or gain privileges"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield "the container keeps capabilities"
    if not container.get("resources", {}).get("limits", {}).get("memory"):
        yield "the container has no memory limit"
    for source in container.get("envFrom", []):
        if source["configMapRef"]["name"] not in _names(documents, "ConfigMap"):
            yield f"there is no ConfigMap {source['configMapRef']['name']}"
    for variable in container.get("env", []):
        yield from problems_of_settings([variable["name"]], facts)
        if "value" not in variable:
            yield from _secret(variable["valueFrom"]["secretKeyRef"], documents)
    yield from _probes(container, port, facts)


def _probes(container: Document, port: int, facts: Facts) -> Iterator[str]:
    ports = {entry["name"]: entry["containerPort"] for entry in container.get("ports", [])}
    if container["args"] == ["serve"] and not {"livenessProbe", "readinessProbe", "startupProbe"} <= set(container):
        yield "a replica has no probes"
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        asked = container.get(name, {}).get("httpGet")
        if asked is None:
            continue
        yield from problems_of_route(asked["path"], facts)
        if ports.get(asked["port"]) != port:
            yield f"{name} asks another port than {port}"
        if (asked["path"] == "/readyz") != (name == "readinessProbe"):
            yield f"{name} asks {asked['path']}: an outage of the database would restart every replica"


def _secret(reference: Document, documents: list[Document]) -> Iterator[str]:
    for document in documents:
        if document["kind"] == "Secret" and document["metadata"]["name"] == reference["name"]:
            if reference["key"] not in document["stringData"]:
                yield f"the secret has no {reference['key']}"
            return
    yield f"there is no secret {reference['name']}"


def _config_map(document: Document, documents: list[Document], port: int, facts: Facts) -> Iterator[str]:
    del documents, port
    yield from problems_of_settings(document["data"], facts)
    secrets = [
        name for name in document["data"] if any(word in name for word in ("SECRET", "PASSWORD", "DATABASE_URL"))
    ]
    yield from (f"{name} is a secret" for name in secrets)


def _selecting(document: Document, documents: list[Document], port: int, facts: Facts) -> Iterator[str]:
    """A Service or a PodDisruptionBudget: it selects pods of a deployment here, and names a port of theirs."""
    del port, facts
    spec = document["spec"]
    selector = spec["selector"].get("matchLabels", spec["selector"]).items()
    pods = [
        other["spec"]["template"]
        for other in documents
        if other["kind"] == "Deployment" and selector <= other["spec"]["template"]["metadata"]["labels"].items()
    ]
    if len(pods) != 1:
        yield f"it selects {len(pods)} deployments"
        return
    names = {entry["name"] for container in pods[0]["spec"]["containers"] for entry in container.get("ports", [])}
    yield from (
        f"no pod has a port {entry['targetPort']}"
        for entry in spec.get("ports", [])
        if entry["targetPort"] not in names
    )


def _network_policy(document: Document, documents: list[Document], port: int, facts: Facts) -> Iterator[str]:
    del port, facts
    containers = [
        container
        for other in documents
        if other["kind"] == "Deployment"
        for container in other["spec"]["template"]["spec"]["containers"]
    ]
    known = {entry["containerPort"] for container in containers for entry in container.get("ports", [])}
    if document["spec"]["policyTypes"] != ["Ingress", "Egress"]:
        yield "it leaves a direction open"
    for rule in document["spec"]["ingress"]:
        if not rule.get("from") or not {entry["port"] for entry in rule["ports"]} <= known:
            yield "it lets in more than named peers to ports of pods"


def _ingress(document: Document, documents: list[Document], port: int, facts: Facts) -> Iterator[str]:
    del port
    for path in (path for rule in document["spec"]["rules"] for path in rule["http"]["paths"]):
        exact = path["pathType"] == "Exact"
        known = path["path"] in facts.routes if exact else any(r.startswith(f"{path['path']}/") for r in facts.routes)
        if not known:
            yield f"the service has no route {path['path']}"
        if path["backend"]["service"]["name"] not in _names(documents, "Service"):
            yield f"there is no Service {path['backend']['service']['name']}"
    known_hosts = set(_settings(documents).get(f"{ENVIRONMENT_PREFIX}UI_HOSTS", "").split(","))
    yield from (
        f"the dashboard is not known at {rule['host']}"
        for rule in document["spec"]["rules"]
        if rule["host"] not in known_hosts
    )
    if not document["spec"].get("tls"):
        yield "tokens would travel in the clear"
    annotations = document["metadata"]["annotations"]
    wanted = {"proxy-body-size": "0", "proxy-request-buffering": "off"}
    yield from (
        f"{name} is not {value}"
        for name, value in wanted.items()
        if annotations.get(f"nginx.ingress.kubernetes.io/{name}") != value
    )


def _nothing(document: Document, documents: list[Document], port: int, facts: Facts) -> Iterator[str]:
    del document, documents, port, facts
    yield from ()


def _names(documents: list[Document], kind: str) -> set[str]:
    return {document["metadata"]["name"] for document in documents if document["kind"] == kind}


def _settings(documents: list[Document]) -> dict[str, str]:
    return {
        name: value
        for document in documents
        if document["kind"] == "ConfigMap"
        for name, value in document["data"].items()
    }


_CHECKS = {
    "Deployment": _pods,
    "Job": _pods,
    "ConfigMap": _config_map,
    "Secret": _nothing,
    "Service": _selecting,
    "PodDisruptionBudget": _selecting,
    "NetworkPolicy": _network_policy,
    "Ingress": _ingress,
}
