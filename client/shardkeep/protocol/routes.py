"""Routes: the path templates, written once for client and service.

Templates use FastAPI's `{name}`; `path()` fills them and percent-encodes each part, so no identifier can add a
segment.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

LIVEZ: Final = "/livez"
READYZ: Final = "/readyz"
METRICS: Final = "/metrics"
CAPABILITIES: Final = "/v1/capabilities"
TOKENS: Final = "/v1/tokens"
TOKEN_SELF: Final = "/v1/tokens/self"
JOB_TOKENS: Final = "/v1/tokens/job"
TOKEN: Final = "/v1/tokens/{token}"
AUDIT: Final = "/v1/audit"
AUDIT_EXPORT: Final = "/v1/audit/export"

SIGN_IN: Final = "/v1/sign-in"
OVERVIEW: Final = "/v1/overview"
SYSTEM: Final = "/v1/system"

PROJECTS: Final = "/v1/projects"
PROJECT: Final = "/v1/projects/{project}"
QUOTA: Final = "/v1/projects/{project}/quota"
RUNS: Final = "/v1/projects/{project}/runs"
RUN: Final = "/v1/projects/{project}/runs/{run}"
LATEST: Final = "/v1/projects/{project}/runs/{run}/latest"
RUN_CHECKPOINTS: Final = "/v1/projects/{project}/runs/{run}/checkpoints"
RUN_ATTEMPTS: Final = "/v1/projects/{project}/runs/{run}/attempts"

RUN_SAVE_REQUEST: Final = "/v1/projects/{project}/runs/{run}/save-request"
RUN_SAVE_TIMES: Final = "/v1/projects/{project}/runs/{run}/save-times"
ALL_RUNS: Final = "/v1/runs"

PROJECT_RETENTION: Final = "/v1/projects/{project}/retention"
PROJECT_RETENTION_PLAN: Final = "/v1/projects/{project}/retention/plan"
PROJECT_RETENTION_APPLY: Final = "/v1/projects/{project}/retention/apply"
RUN_RETENTION: Final = "/v1/projects/{project}/runs/{run}/retention"
RUN_RETENTION_PLAN: Final = "/v1/projects/{project}/runs/{run}/retention/plan"
RUN_RETENTION_APPLY: Final = "/v1/projects/{project}/runs/{run}/retention/apply"
PROJECT_BY_ID: Final = "/v1/projects-by-id/{project}"
PROJECT_RESTORE: Final = "/v1/projects-by-id/{project}/restore"
RUN_BY_ID: Final = "/v1/runs-by-id/{run}"
RUN_RESTORE: Final = "/v1/runs-by-id/{run}/restore"

ATTEMPT: Final = "/v1/attempts/{attempt}"
RESUME: Final = "/v1/attempts/{attempt}/resume"
INVENTORY: Final = "/v1/attempts/{attempt}/inventories/{layout}/{rank}"
ATTEMPT_SAVE_REQUEST: Final = "/v1/attempts/{attempt}/save-request"
ATTEMPT_CHECKPOINTS: Final = "/v1/attempts/{attempt}/checkpoints"

SAVES: Final = "/v1/saves"
CHECKPOINTS: Final = "/v1/checkpoints"
CHECKPOINT: Final = "/v1/checkpoints/{checkpoint}"
STATE: Final = "/v1/checkpoints/{checkpoint}/state"
BEAT: Final = "/v1/checkpoints/{checkpoint}/sessions/{rank}/beat"
ABORT: Final = "/v1/checkpoints/{checkpoint}/abort"
MANIFEST: Final = "/v1/checkpoints/{checkpoint}/manifests/{rank}"
NEGOTIATE: Final = "/v1/checkpoints/{checkpoint}/chunks/negotiate"
READ_TARGETS: Final = "/v1/checkpoints/{checkpoint}/chunks/targets"
CHUNK: Final = "/v1/checkpoints/{checkpoint}/chunks/{digest}"
RANKS: Final = "/v1/checkpoints/{checkpoint}/ranks"
TENSORS: Final = "/v1/checkpoints/{checkpoint}/tensors"
SLICES: Final = "/v1/checkpoints/{checkpoint}/slices"
VALUES: Final = "/v1/checkpoints/{checkpoint}/values"
DIFFERENCES: Final = "/v1/checkpoints/{checkpoint}/differences/{other}"
IMPACT: Final = "/v1/checkpoints/{checkpoint}/impact"
LOAD_PLAN: Final = "/v1/checkpoints/{checkpoint}/load-plan"
RESTORE: Final = "/v1/checkpoints/{checkpoint}/restore"
ACCEPT: Final = "/v1/checkpoints/{checkpoint}/accept"
PIN: Final = "/v1/checkpoints/{checkpoint}/pin"
TAG: Final = "/v1/checkpoints/{checkpoint}/tags/{tag}"
DAMAGE: Final = "/v1/checkpoints/{checkpoint}/damage"

INTEGRITY: Final = "/v1/integrity"
FINDINGS: Final = "/v1/integrity/findings"

UI: Final = "/ui"

BINARY_CONTENT_TYPE: Final = "application/octet-stream"
CRC64_HEADER: Final = "x-shardkeep-crc64nvme"
"""CRC64NVME of a chunk's body, 16 hexadecimal digits, beside Content-Length on PUT and GET of a chunk."""
CSRF_HEADER: Final = "x-shardkeep-csrf"
"""Beside the dashboard's cookie, on every request that changes something."""
REQUEST_ID_HEADER: Final = "x-request-id"
TRACE_HEADER: Final = "traceparent"
TRACE_STATE_HEADER: Final = "tracestate"
"""W3C trace context: taken over, and echoed with the span that served the request."""
ATTEMPT_HEADER: Final = "x-shardkeep-attempt"
"""The attempt that deletes, pins or overwrites on behalf of training; an older one is fenced."""


def path(template: str, **parts: str | int) -> str:
    """The template with each part percent-encoded."""
    return template.format_map({name: quote(str(value), safe="") for name, value in parts.items()})
