"""The deployment files name only what exists: images, users, commands, settings, ports, routes, metrics, error codes.

No container engine runs here, so the files are read. That the checks see mistakes is tried on planted ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import requires

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from shardkeep_service.settings import ENVIRONMENT_PREFIX, Settings
from tests.architecture.deployment.compose_checks import VARIABLE, problems_of_compose
from tests.architecture.deployment.dockerfiles import stages_of
from tests.architecture.deployment.facts import ROOT, Facts, facts_of_the_code
from tests.architecture.deployment.image_checks import (
    problems_of_command,
    problems_of_context,
    problems_of_dockerfile,
    problems_of_service_image,
    problems_of_settings,
    service_port,
)
from tests.architecture.deployment.kubernetes_checks import problems_of_manifests
from tests.architecture.deployment.proxy_checks import problems_of_alerts, problems_of_proxy, problems_of_scraping

IMAGE = "Dockerfile"
IGNORED = ".dockerignore"
COMPOSE = "docker-compose.yml"
ENV = "deploy/example.env"
PROXY = "deploy/haproxy.cfg"
SCRAPING = "deploy/prometheus.yml"
ALERTS = "deploy/alerts.yml"
STORES = ("deploy/minio.Dockerfile", "deploy/seaweedfs.Dockerfile")
MANIFESTS = sorted(f"docs/kubernetes/{path.name}" for path in (ROOT / "docs/kubernetes").glob("*.yaml"))
PAGES = ("docs/operations.md", "docs/kubernetes/README.md", "README.md", COMPOSE)
Files = dict[str, str]


@pytest.fixture(scope="module")
def facts() -> Facts:
    return facts_of_the_code()


@pytest.fixture(scope="module")
def files() -> Files:
    names = (IMAGE, IGNORED, COMPOSE, ENV, PROXY, SCRAPING, ALERTS, *STORES, *MANIFESTS)
    return {name: (ROOT / name).read_text() for name in names}


def problems(files: Files, facts: Facts) -> list[str]:
    """Every problem of every file."""
    port = service_port(stages_of(files[IMAGE])[-1])
    services = yaml.safe_load(files[COMPOSE])["services"]
    return [
        *problems_of_service_image(files[IMAGE], facts),
        *problems_of_context(files[IMAGE], files[IGNORED]),
        *(problem for name in STORES for problem in problems_of_dockerfile(files[name], facts)),
        *problems_of_compose(files[COMPOSE], files[ENV], port, facts),
        *problems_of_proxy(files[PROXY], services, port, facts),
        *problems_of_scraping(files[SCRAPING], services, port, files[PROXY], facts),
        *problems_of_alerts(files[ALERTS], facts),
        *problems_of_manifests({name: files[name] for name in MANIFESTS}, port, facts),
    ]


def test_the_deployment_files_name_only_what_exists(files: Files, facts: Facts) -> None:
    assert problems(files, facts) == []


@dataclass(frozen=True)
class Mistake:
    """`old` in a file becomes `new`, and some problem must say `told`."""

    file: str
    old: str
    new: str
    told: str


MANIFEST = "docs/kubernetes/service.yaml"
JOB = "docs/kubernetes/migration-job.yaml"
MISTAKES = [
    Mistake(IMAGE, "9d2e5553305c", "sha256", "not pinned"),
    Mistake(IMAGE, "USER 10001:10001", "USER root", "as root"),
    Mistake(IMAGE, "USER 10001:10001\n", "", "as root"),
    Mistake(IMAGE, "EXPOSE 8700", "EXPOSE 8080", "EXPOSE"),
    Mistake(IMAGE, "'/livez'", "'/health'", "no route /health"),
    Mistake(IMAGE, 'CMD ["serve"]', 'CMD ["server"]', "no command"),
    Mistake(IMAGE, "SERVICE_DATA_DIR", "SERVICE_DATADIR", "no setting"),
    Mistake(IMAGE, "'.[service]'", "'.[service,torch]'", "torch"),
    Mistake(IMAGE, "COPY --from=dashboard", "COPY --from=other", "no dashboard"),
    Mistake(IMAGE, "RUN npm run build", "RUN npm run check", "no dashboard"),
    Mistake(IGNORED, "!docs/openapi.json", "docs/openapi.json", "leaves docs/openapi.json out"),
    Mistake(STORES[0], "@sha256:14cea493", "@sha256:14", "not pinned"),
    Mistake(STORES[1], "USER 10001:10001", "USER 0", "as root"),
    Mistake(COMPOSE, "haproxy:3.2.21-alpine@sha256:", "haproxy:latest#", "not pinned"),
    Mistake(COMPOSE, "shardkeep/service:0.1.0", "shardkeep/service:latest", "not of this version"),
    Mistake(COMPOSE, 'user: "999:999"', 'user: "0:0"', "postgres: it runs as root"),
    Mistake(COMPOSE, '    user: "99:99"\n', "", "proxy: it runs as root"),
    Mistake(COMPOSE, "command: [worker]", "command: [work]", "no command 'work'"),
    Mistake(COMPOSE, "command: [migrate]", "command: [migrate, --now]", "no option --now"),
    Mistake(COMPOSE, "SERVICE_S3_BUCKET", "SERVICE_S3_BUCKET_NAME", "no setting"),
    Mistake(COMPOSE, "/readyz", "/ready", "no route /ready"),
    Mistake(COMPOSE, "'127.0.0.1', 8700", "'127.0.0.1', 8701", "asks port 8701"),
    Mistake(COMPOSE, "stop_grace_period: 75s", "stop_grace_period: 60s", "killed after 60 s"),
    Mistake(COMPOSE, "./deploy/haproxy.cfg", "./deploy/proxy.cfg", "to mount"),
    Mistake(COMPOSE, "  prometheus-data: {}", "  prometheus: {}", "prometheus-data"),
    Mistake(COMPOSE, "migrate: {condition", "migration: {condition", "which is no service"),
    Mistake(COMPOSE, "  read_only: true", "  read_only: false", "read_only"),
    Mistake(COMPOSE, "SHUTDOWN_SECONDS: \"60\"", "SHUTDOWN_SECONDS: \"80\"", "may take 80 s"),
    Mistake(COMPOSE, "POSTGRES_PASSWORD: ${POSTGRES_PASSWORD:?", "POSTGRES_PASSWORD: x${POSTGRES_PASSWORD:?", "secret"),
    Mistake(COMPOSE, "${S3_REGION", "${REGION", "does not name REGION"),
    Mistake(COMPOSE, "deploy/minio.Dockerfile", "deploy/minio.docker", "there is no deploy/minio.docker"),
    Mistake(ENV, "POSTGRES_PASSWORD=\n", "POSTGRES_PASSWORD=secret\n", "gives POSTGRES_PASSWORD away"),
    Mistake(ENV, "S3_BUCKET=", "BUCKET=", "does not name S3_BUCKET"),
    Mistake(PROXY, "server service-2 service-2:8700", "server service-3 service-3:8700", "no service of compose"),
    Mistake(PROXY, "    server service-2 service-2:8700\n", "", "leaves out service-2"),
    Mistake(PROXY, "service-1:8700", "service-1:8080", "asks port 8080"),
    Mistake(PROXY, "httpchk GET /readyz", "httpchk GET /livez", "is ready"),
    Mistake(PROXY, "timeout server 90s", "timeout server 20s", "timeout server"),
    Mistake(PROXY, "    http-request deny", "    # http-request deny", "/metrics"),
    Mistake(PROXY, "bind :8080", "bind :80", "nothing listens on 8080"),
    Mistake(SCRAPING, "service-2:8700", "service-9:8700", "service-9"),
    Mistake(SCRAPING, "proxy:8405", "proxy:8404", "8404"),
    Mistake(SCRAPING, "metrics_path: /metrics", "metrics_path: /stats", "no route /stats"),
    Mistake(ALERTS, "shardkeep_outbox_lag_seconds", "shardkeep_outbox_lag", "no metric"),
    Mistake(ALERTS, 'code="busy"', 'code="too_busy"', "no error code too_busy"),
    Mistake(ALERTS, "outcome!=", "result!=", "no label result"),
    Mistake(MANIFEST, "service:0.1.0", "service:latest", "not of this version"),
    Mistake(MANIFEST, "args: [serve]", "args: [run]", "no command"),
    Mistake(MANIFEST, "runAsNonRoot: true", "runAsNonRoot: false", "root"),
    Mistake(MANIFEST, "runAsUser: 10001", "runAsUser: 0", "as root"),
    Mistake(MANIFEST, "httpGet: {path: /livez", "httpGet: {path: /readyz", "would restart every replica"),
    Mistake(MANIFEST, "path: /readyz", "path: /healthz", "no route /healthz"),
    Mistake(MANIFEST, "containerPort: 8700", "containerPort: 80", "another port"),
    Mistake(MANIFEST, "terminationGracePeriodSeconds: 90", "terminationGracePeriodSeconds: 60", "killed after 60 s"),
    Mistake(MANIFEST, "key: database-url", "key: database", "the secret has no database"),
    Mistake(MANIFEST, "targetPort: http", "targetPort: web", "no pod has a port web"),
    Mistake(MANIFEST, "component: service}\n  ports", "component: web}\n  ports", "selects 0 deployments"),
    Mistake(MANIFEST, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "root file system"),
    Mistake(JOB, "args: [migrate]", "args: [upgrade]", "no command"),
    Mistake("docs/kubernetes/settings.yaml", "SHUTDOWN_SECONDS: \"60\"", "SHUTDOWN: \"60\"", "no setting"),
    Mistake("docs/kubernetes/settings.yaml", "UI_HOSTS: shardkeep.", "UI_HOSTS: dashboard.", "not known at shardkeep."),
    Mistake("docs/kubernetes/worker.yaml", "args: [worker]", "args: [worker, --fast]", "no option --fast"),
    Mistake("docs/kubernetes/network-policy.yaml", "port: 8701", "port: 8080", "lets in more"),
    Mistake("docs/kubernetes/ingress.yaml", "path: /v1", "path: /api", "no route /api"),
    Mistake("docs/kubernetes/ingress.yaml", 'body-size: "0"', 'body-size: "1m"', "proxy-body-size"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.file}: {mistake.new[:40]!r}")
def test_a_mistake_is_seen(mistake: Mistake, files: Files, facts: Facts) -> None:
    text = files[mistake.file]
    assert mistake.old in text, "the mistake is planted nowhere"

    found = problems({**files, mistake.file: text.replace(mistake.old, mistake.new)}, facts)

    assert any(mistake.told in problem for problem in found), found


def test_the_settings_that_compose_gives_can_be_read(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, service in yaml.safe_load(files[COMPOSE])["services"].items():
        with monkeypatch.context() as patch:
            for variable, value in service.get("environment", {}).items():
                patch.setenv(variable, VARIABLE.sub("secret", str(value)).replace("path-secret", "path"))
            if "SHARDKEEP_SERVICE_S3_ADDRESSING_STYLE" in service.get("environment", {}):
                patch.setenv("SHARDKEEP_SERVICE_S3_ADDRESSING_STYLE", "path")
                patch.setenv("SHARDKEEP_SERVICE_S3_ENDPOINT_URL", "http://object-store:9000")
                patch.setenv("SHARDKEEP_SERVICE_S3_PUBLIC_ENDPOINT_URL", "http://127.0.0.1:9000")
            if "SHARDKEEP_SERVICE_TRUSTED_PROXIES" in service.get("environment", {}):
                patch.setenv("SHARDKEEP_SERVICE_TRUSTED_PROXIES", "172.18.0.0/16")
            settings = Settings()
            assert settings.is_embedded == (
                f"{ENVIRONMENT_PREFIX}DATABASE_URL" not in service.get("environment", {})
            ), name


def pages_commands(text: str) -> list[list[str]]:
    """Every `shardkeep-service ...` of a page, up to what ends it."""
    lines = text.replace("\\\n", " ").splitlines()
    found = re.findall(r"shardkeep-service (?!:)([a-z][^`\n|;#&)]*)", "\n".join(lines))
    return [[word for word in command.split() if re.match(r"^-{0,2}[a-z]", word)] for command in found]


@pytest.mark.parametrize("name", PAGES)
def test_every_command_and_setting_of_a_page_exists(name: str, facts: Facts) -> None:
    text = (ROOT / name).read_text()
    found = [problem for words in pages_commands(text) for problem in problems_of_command(words, facts)]
    found += problems_of_settings(re.findall(rf"{ENVIRONMENT_PREFIX}[A-Z0-9_]*[A-Z0-9]", text), facts)
    assert found == []


def test_the_page_of_operations_has_a_row_for_every_setting(facts: Facts) -> None:
    text = (ROOT / "docs/operations.md").read_text()
    missing = [
        name for name in sorted(facts.settings) if f"`{name.removeprefix(ENVIRONMENT_PREFIX).lower()}`" not in text
    ]
    assert missing == []


def pins() -> dict[str, Version]:
    lines = (ROOT / "deploy/constraints.txt").read_text().splitlines()
    return {name: Version(version) for name, _, version in (line.partition("==") for line in lines if "==" in line)}


def requirements_of_the_service(
    *, wanted: Callable[[Requirement], bool] = lambda _: True
) -> dict[str, list[Requirement]]:
    """Every package the extra `service` needs, with what is asked of it, on the Python of the image."""
    found: dict[str, list[Requirement]] = {}
    waiting = [("shardkeep", frozenset({"service"}))]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        for text in requires(name) or []:
            requirement = Requirement(text)
            environments = [{"extra": extra, "python_version": "3.13"} for extra in extras or {""}]
            if requirement.marker and not any(requirement.marker.evaluate(env) for env in environments):
                continue
            canonical = canonicalize_name(requirement.name)
            found.setdefault(canonical, []).append(requirement)
            entry = (canonical, frozenset(requirement.extras))
            if wanted(requirement) and entry not in seen:
                seen.add(entry)
                waiting.append(entry)
    return found


def test_the_image_builds_the_dashboard_with_the_node_that_developers_take(files: Files) -> None:
    pinned = re.findall(r"^(nodejs-[a-z-]+==\S+)$", (ROOT / "constraints-dev.txt").read_text(), re.MULTILINE)
    assert pinned
    assert set(re.findall(r"nodejs-[a-z-]+==\S+", files[IMAGE])) == set(pinned)


def test_the_image_installs_pinned_versions_of_all_it_needs_and_no_torch() -> None:
    needed, pinned = requirements_of_the_service(), pins()
    assert set(needed) == set(pinned), set(needed) ^ set(pinned)
    misfits = [
        f"{requirement} against {pinned[name]}"
        for name, asked in needed.items()
        for requirement in asked
        if not requirement.specifier.contains(pinned[name], prereleases=True)
    ]
    assert misfits == []
    assert "torch" not in pinned
