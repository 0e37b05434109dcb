"""Checks that Dockerfiles, compose and Kubernetes share: pinned images, users, commands, settings, routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shardkeep_service.settings import ENVIRONMENT_PREFIX
from tests.architecture.deployment.dockerfiles import Stage, exec_form, stages_of
from tests.architecture.deployment.facts import Facts

DIGEST = re.compile(r"^[^@\s]+:[^@:/\s]+@sha256:[0-9a-f]{64}$")
ROOT_USERS = {"", "0", "root"}
OWN_IMAGE = "shardkeep/service"
STATIC_FILES = "service/shardkeep_service/ui/static"
PATH_ASKED = re.compile(r"request\('GET', '(?P<path>/\w+)'\)")
PORT_ASKED = re.compile(r"HTTPConnection\('127\.0\.0\.1', (?P<port>\d+)")


def problems_of_image(image: str, facts: Facts) -> list[str]:
    """Foreign images carry tag and digest, our own the version of this tree."""
    if image.rpartition(":")[0].endswith(OWN_IMAGE):
        version = image.rpartition(":")[2]
        return [] if version == facts.version else [f"{image} is not of this version, {facts.version}"]
    if image.startswith("shardkeep/"):  # built from a Dockerfile of ours, which is checked itself
        return [] if not image.endswith(":latest") and ":" in image else [f"{image} is not pinned"]
    return [] if DIGEST.match(image) else [f"{image} is not pinned by tag and digest"]


def problems_of_user(where: str, user: object) -> list[str]:
    name = str(user or "").partition(":")[0]
    return [f"{where} runs as root"] if name in ROOT_USERS else []


def problems_of_command(words: Sequence[str], facts: Facts) -> list[str]:
    """The words after `shardkeep-service`."""
    names = [word for word in words if not word.startswith("-")]
    path = next((found for found in (" ".join(names[:2]), " ".join(names[:1])) if found in facts.commands), None)
    if path is None:
        return [f"shardkeep-service has no command {' '.join(words)!r}"]
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    return [f"{path} has no option {option}" for option in options if option not in facts.commands[path]]


def problems_of_settings(names: Iterable[str], facts: Facts) -> list[str]:
    return [
        f"there is no setting {name}"
        for name in names
        if name.startswith(ENVIRONMENT_PREFIX) and name not in facts.settings
    ]


def problems_of_route(path: str, facts: Facts) -> list[str]:
    return [] if path in facts.routes else [f"the service has no route {path}"]


def problems_of_health(test: Sequence[str], port: int, facts: Facts) -> list[str]:
    """A health check in Python that asks our own port."""
    text = " ".join(test)
    path, asked = PATH_ASKED.search(text), PORT_ASKED.search(text)
    if path is None or asked is None:
        return ["the health check names no route and port"]
    found = problems_of_route(path["path"], facts)
    return found if int(asked["port"]) == port else [*found, f"the health check asks port {asked['port']}"]


def problems_of_dockerfile(text: str, facts: Facts) -> list[str]:
    """Any Dockerfile here: pinned, and not root in the end."""
    stages = stages_of(text)
    found = [problem for stage in stages for problem in problems_of_image(stage.image, facts)]
    return found + problems_of_user("the image", stages[-1].last("USER"))


def problems_of_service_image(text: str, facts: Facts) -> list[str]:
    """The Dockerfile of the service."""
    found = problems_of_dockerfile(text, facts)
    final = stages_of(text)[-1]
    words = [*exec_form(final.last("ENTRYPOINT")), *exec_form(final.last("CMD"))]
    if words[0] != "shardkeep-service":
        found.append(f"the entry point is {words[0]}")
    found += problems_of_command(words[1:], facts)
    found += problems_of_settings(final.environment(), facts)
    port = service_port(final)
    if final.all("EXPOSE") != [str(port)]:
        found.append(f"EXPOSE is not the port {port}")
    found += problems_of_health(exec_form(final.last("HEALTHCHECK")), port, facts)
    if "torch" in text.replace("No torch", ""):
        found.append("the image would hold torch")
    found += problems_of_dashboard(stages_of(text))
    if len(stages_of(text)) < 2 or any(word in final.all("RUN") for word in ("pip", "gcc")):
        found.append("the image is not built in stages")
    return found


def problems_of_dashboard(stages: Sequence[Stage]) -> list[str]:
    """The dashboard's files are made in a stage of their own, and packaged."""
    copied = [words.split() for stage in stages for words in stage.all("COPY") if words.startswith("--from=dashboard")]
    built = [stage for stage in stages if stage.name == "dashboard" and "npm run build" in stage.all("RUN")]
    if not built or [words[2] for words in copied] != [STATIC_FILES]:
        return ["the image would hold no dashboard"]
    return []


def problems_of_context(text: str, ignored: str) -> list[str]:
    """What a Dockerfile copies from the tree is sent to the builder: .dockerignore begins by leaving all out."""
    sent = {line.removeprefix("!") for line in ignored.splitlines() if line.startswith("!")}
    sources = [
        source
        for stage in stages_of(text)
        for words in stage.all("COPY")
        if not words.startswith("--from=")
        for source in words.split()[:-1]
    ]
    return [
        f".dockerignore leaves {source} out"
        for source in sources
        if not any(source == name or source.startswith(f"{name}/") for name in sent)
    ]


def service_port(stage: Stage) -> int:
    return int(stage.environment()[f"{ENVIRONMENT_PREFIX}PORT"])
