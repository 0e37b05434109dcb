"""Checks of docker-compose.yml against the code and against the files it mounts."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import yaml

from shardkeep_service.settings import ENVIRONMENT_PREFIX, Settings
from tests.architecture.deployment.facts import ROOT, Facts
from tests.architecture.deployment.image_checks import (
    OWN_IMAGE,
    problems_of_command,
    problems_of_health,
    problems_of_image,
    problems_of_settings,
    problems_of_user,
)

VARIABLE = re.compile(r"\$\{(\w+)(?::[-?][^{}]*)?\}")
"""One without another inside of its default."""
DEFAULT = re.compile(r"\$\{\w+:-([^{}]*)\}")
REQUIRED = re.compile(r"^\$\{\w+:\?[^}]*\}$")
SECRET = re.compile(r"PASSWORD|SECRET|ACCESS_KEY_ID|ROOT_USER")


def problems_of_compose(text: str, env_text: str, port: int, facts: Facts) -> list[str]:
    document = yaml.safe_load(text)
    services: dict[str, Any] = document["services"]
    found = [
        f"{name}: {problem}"
        for name, service in services.items()
        for problem in _problems_of_service(service, services, document, port, facts)
    ]
    return found + problems_of_trust(document) + _problems_of_variables(text, env_text)


def _problems_of_service(
    service: dict[str, Any], services: dict[str, Any], document: dict[str, Any], port: int, facts: Facts
) -> list[str]:
    found = problems_of_image(service["image"], facts)
    found += problems_of_user("it", service.get("user"))
    found += _problems_of_hardening(service)
    found += _problems_of_references(service, services, document)
    environment = service.get("environment", {})
    found += problems_of_settings(environment, facts)
    found += [
        f"{name} holds a secret in the file"
        for name, value in environment.items()
        if SECRET.search(name) and not REQUIRED.match(str(value))
    ]
    if service["image"].rpartition(":")[0] == OWN_IMAGE and "entrypoint" not in service:
        found += problems_of_command(service["command"], facts)
        found += _problems_of_grace(service)
        health = service.get("healthcheck", {})
        if not health.get("disable"):
            found += problems_of_health(health["test"], port, facts)
            found += [] if service.get("expose") == [str(port)] else [f"it does not expose {port}"]
    return found


def _problems_of_hardening(service: dict[str, Any]) -> list[str]:
    wanted = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
    found = [f"{name} is not {value}" for name, value in wanted.items() if service.get(name) != value]
    return [*found, "it is privileged"] if service.get("privileged") else found


def _problems_of_references(service: dict[str, Any], services: dict[str, Any], document: dict[str, Any]) -> list[str]:
    found = [f"there is no network {name}" for name in service.get("networks", []) if name not in document["networks"]]
    for volume in service.get("volumes", []):
        source = volume.partition(":")[0]
        exists = (ROOT / source).is_file() if source.startswith("./") else source in document["volumes"]
        found += [] if exists else [f"there is no {source} to mount"]
    build = service.get("build")
    if isinstance(build, dict) and not (ROOT / build["dockerfile"]).is_file():
        found.append(f"there is no {build['dockerfile']}")
    for other, how in service.get("depends_on", {}).items():
        if other not in services:
            found.append(f"it waits for {other}, which is no service")
        elif how["condition"] == "service_healthy" and "test" not in services[other].get("healthcheck", {}):
            found.append(f"it waits for the health of {other}, which has no health check")
    return found


def _problems_of_grace(service: dict[str, Any]) -> list[str]:
    """Long-running ones get more time to end than they take by themselves."""
    if service["restart"] != "unless-stopped":
        return []
    grace = int(str(service.get("stop_grace_period", "10s")).removesuffix("s"))
    default = Settings.model_fields["shutdown_seconds"].default
    drain = float(service["environment"].get(f"{ENVIRONMENT_PREFIX}SHUTDOWN_SECONDS", default))
    return [] if grace > drain else [f"it is killed after {grace} s, while it may take {drain:g} s to end"]


def problems_of_trust(document: dict[str, Any]) -> list[str]:
    """Without a word of the operator, replicas believe the proxy, and nobody outside of the network that it is on."""
    found = []
    services = document["services"]
    for name, service in services.items():
        if service.get("command") == ["serve"]:
            trusted = with_defaults(service["environment"].get(f"{ENVIRONMENT_PREFIX}TRUSTED_PROXIES", ""))
            shared = set(service["networks"]) & set(services["proxy"]["networks"])
            subnets = {subnet for network in shared for subnet in _subnets(document["networks"][network])}
            if not trusted or subnets != {trusted}:
                found.append(f"{name} trusts {trusted!r}, the proxy is on {sorted(subnets)}")
            found += [f"{subnet} is a public network" for subnet in subnets if not _is_private(subnet)]
    return found


def with_defaults(text: str) -> str:
    """What compose makes of a value where no variable is set."""
    while DEFAULT.search(text):
        text = DEFAULT.sub(r"\1", text)
    return text


def _subnets(network: dict[str, Any]) -> list[str]:
    return [with_defaults(entry["subnet"]) for entry in network.get("ipam", {}).get("config", [])]


def _is_private(subnet: str) -> bool:
    return ipaddress.ip_network(subnet).is_private


def _problems_of_variables(text: str, env_text: str) -> list[str]:
    used = set(re.findall(r"\$\{(\w+)", text))
    given = dict(line.split("=", 1) for line in env_text.splitlines() if line and not line.startswith("#"))
    found = [f"deploy/example.env does not name {name}" for name in sorted(used - set(given))]
    found += [f"nothing uses {name} of deploy/example.env" for name in sorted(set(given) - used - {"COMPOSE_PROFILES"})]
    return found + [
        f"deploy/example.env gives {name} away" for name, value in given.items() if SECRET.search(name) and value
    ]
