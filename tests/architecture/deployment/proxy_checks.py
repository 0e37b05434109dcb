"""Checks of the proxy's and Prometheus' configuration: names, ports, routes, timeouts, metrics, labels."""

from __future__ import annotations

import re
from typing import Any

import yaml

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.settings import ENVIRONMENT_PREFIX, Settings
from tests.architecture.deployment.facts import Facts
from tests.architecture.deployment.image_checks import problems_of_route

LONGEST_POLL_SECONDS = 30
SELECTOR = re.compile(r"(?P<name>shardkeep_\w+)(?:\{(?P<labels>[^}]*)\})?")
MATCHER = re.compile(r'(?P<label>\w+)(?P<operator>=~|!~|!=|=)"(?P<value>[^"]*)"')


def problems_of_proxy(text: str, services: dict[str, Any], port: int, facts: Facts) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    found = []
    for name, host, asked in re.findall(r"(?m)^\s*server (\S+) (\S+):(\d+)", text):
        if host not in services or name != host:
            found.append(f"{host} is no service of compose")
        if int(asked) != port:
            found.append(f"the proxy asks port {asked} of {host}")
    replicas = {name for name, service in services.items() if service.get("command") == ["serve"]}
    missing = replicas - set(re.findall(r"(?m)^\s*server (\S+)", text))
    found += [f"the proxy leaves out {name}" for name in sorted(missing)]
    for path in re.findall(r"option httpchk GET (\S+)", text) + re.findall(r"\{ path (\S+) \}", text):
        found += problems_of_route(path, facts)
    if "option httpchk GET /readyz" not in lines:
        found.append("the proxy does not ask whether a replica is ready")
    if "option http-buffer-request" in lines:
        found.append("the proxy buffers bodies")
    if "http-request deny deny_status 404 if { path /metrics }" not in lines:
        found.append("the proxy passes /metrics on, which needs no token here")
    idle = max(LONGEST_POLL_SECONDS, float(Settings.model_fields["idle_timeout_seconds"].default))
    for side in ("client", "server"):
        seconds = re.search(rf"(?m)^\s*timeout {side} (\d+)s$", text)
        if seconds is None or int(seconds[1]) <= idle:
            found.append(f"timeout {side} cuts what may rightly stand still for {idle:g} s")
    published = {str(entry).rpartition(":")[2] for entry in services["proxy"]["ports"]}
    bound = set(re.findall(r"(?m)^\s*bind :(\d+)", text))
    return found + [f"nothing listens on {asked} of the proxy" for asked in sorted(published - bound)]


def problems_of_scraping(text: str, services: dict[str, Any], port: int, proxy_text: str, facts: Facts) -> list[str]:
    found = []
    bound = set(re.findall(r"(?m)^\s*bind :(\d+)", proxy_text))
    for job in yaml.safe_load(text)["scrape_configs"]:
        found += problems_of_route(job["metrics_path"], facts)
        for target in (target for entry in job["static_configs"] for target in entry["targets"]):
            host, _, asked = target.partition(":")
            if host not in services:
                found.append(f"{host} is no service of compose")
            elif asked not in _metrics_ports(host, services[host], port, bound):
                found.append(f"{host} has no metrics on port {asked}")
    return found


def _metrics_ports(name: str, service: dict[str, Any], port: int, bound: set[str]) -> set[str]:
    if name == "proxy":
        return bound
    if service.get("command") == ["serve"]:
        return {str(port)}
    return {str(service.get("environment", {}).get(f"{ENVIRONMENT_PREFIX}METRICS_PORT"))}


def problems_of_alerts(text: str, facts: Facts) -> list[str]:
    """Every metric, label and error code that a rule names exists."""
    found = []
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    for rule in rules:
        for match in SELECTOR.finditer(rule["expr"]):
            labels = facts.metrics.get(match["name"])
            if labels is None:
                found.append(f"{rule['alert']}: there is no metric {match['name']}")
                continue
            for matcher in MATCHER.finditer(match["labels"] or ""):
                found += [f"{rule['alert']}: {problem}" for problem in _problems_of_matcher(matcher, labels)]
        if set(rule["labels"]) != {"severity"} or "summary" not in rule["annotations"]:
            found.append(f"{rule['alert']} does not say how bad and what")
    return found


def _problems_of_matcher(matcher: re.Match[str], labels: frozenset[str]) -> list[str]:
    if matcher["label"] not in labels:
        return [f"the metric has no label {matcher['label']}"]
    if matcher["label"] != "code":
        return []
    codes = {code.value for code in ErrorCode}
    return [f"there is no error code {code}" for code in matcher["value"].split("|") if code not in codes]
