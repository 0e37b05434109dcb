"""Messages: the JSON bodies of requests and answers.

Requests refuse unknown members, so that a typo is an error and not a silently ignored option; answers ignore members
they do not know, so that a newer service may add some. Binary bodies (chunks, manifests, load requests and load
plans) are described in `shardkeep.format`.

Times are UTC ISO 8601. Sizes are bytes. Metrics keep nan and infinities as the strings "NaN", "Infinity" and
"-Infinity", so every body is strict JSON and nothing is lost.
"""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints

from shardkeep.protocol.identifiers import (
    RANK_LIMIT,
    AttemptId,
    CheckpointId,
    Digest,
    LaunchId,
    Name,
    ProjectId,
    RunId,
    TokenId,
)
from shardkeep.protocol.versions import NEGOTIATE_LIMIT

Item = TypeVar("Item")
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _read_metric(value: object) -> object:
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _write_metric(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


Metric = Annotated[float, BeforeValidator(_read_metric), PlainSerializer(_write_metric, return_type=float | str)]
MetricName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Label = Annotated[str, StringConstraints(max_length=1000)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Rank = Annotated[int, Field(ge=0, lt=RANK_LIMIT)]
WorldSize = Annotated[int, Field(ge=1, le=RANK_LIMIT)]
Step = Annotated[int, Field(ge=0, le=2**62)]
Size = Annotated[int, Field(ge=0, le=2**62)]


class Request(BaseModel):
    """A request body."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """An answer body."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Problem(Answer):
    """RFC 9457 problem document: `code` is stable, `detail` says what to do next.

    Further members by code, all optional: `chunks` (digests), `ranks`, `tensors`, `passed_over`, `checkpoint_id`,
    `state`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    retryable: bool = False
    retry_after_seconds: float | None = None


class Capabilities(Answer):
    """What a service speaks and allows."""

    service_version: str
    protocol_versions: list[int]
    manifest_versions: list[int]
    codecs: list[str]
    max_chunk_bytes: int
    max_manifest_bytes: int
    negotiate_limit: int
    list_limit: int
    lease_seconds: float
    beat_seconds: float
    wait_seconds_limit: float
    uploads: list[Literal["streamed", "direct"]]


class TokenInfo(Answer):
    """GET /v1/tokens/self: what a token may do. Its text is shown once, when it is made, and never again."""

    id: TokenId
    name: str
    prefix: str
    """The first characters, to recognise it by."""
    scope: str
    """`read`, `write` or `admin`."""
    project: str | None
    """The only project it sees; None sees all."""
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


# --- projects and runs ---------------------------------------------------------------------------------------------


class CreateProject(Request):
    """POST /v1/projects (admin)."""

    name: Name


class ProjectInfo(Answer):
    """One project."""

    id: ProjectId
    name: str
    created_at: datetime
    runs: int
    committed_checkpoints: int
    stored_bytes: int


class RunInfo(Answer):
    """One run. `created` is true only in the answer to the request that made it."""

    id: RunId
    project: str
    name: str
    created_at: datetime
    created: bool = False
    current_attempt_id: AttemptId | None
    attempts: int
    checkpoints: int
    committed_checkpoints: int
    latest: CheckpointSummary | None


# --- attempts ------------------------------------------------------------------------------------------------------


class BeginAttempt(Request):
    """POST /v1/projects/{project}/runs/{run}/attempts. The same launch_id and ordinal give the same attempt."""

    launch_id: LaunchId
    ordinal: Annotated[int, Field(ge=0, lt=1 << 31)]
    world_size: WorldSize
    labels: dict[Name, Label] = Field(default_factory=dict, max_length=64)


class AttemptInfo(Answer):
    """One attempt. `decision` is None until a rank asked to resume, then `fresh` or a checkpoint id."""

    id: AttemptId
    run_id: RunId
    project: str
    run: str
    number: int
    launch_id: LaunchId
    ordinal: int
    world_size: int
    labels: dict[str, str]
    created_at: datetime
    current: bool
    decision: str | None


class DecideResume(Request):
    """POST /v1/attempts/{attempt}/resume: at most one of the two; neither means the last consistent checkpoint.

    The first rank's answer is recorded; later ranks get it whatever they ask, unless they ask for something else by
    name, which is `resume_decided_otherwise`.
    """

    checkpoint_id: CheckpointId | None = None
    fresh: bool = False


class PassedOver(Answer):
    """A checkpoint that is newer and was not chosen, or that cannot be used, and why."""

    checkpoint_id: CheckpointId
    step: int
    attempt_id: AttemptId
    state: CheckpointState
    code: str
    reason: str
    missing_ranks: list[int] = Field(default_factory=list)


class ResumeDecision(Answer):
    """What every rank of the attempt resumes from: `checkpoint`, or nothing and then `fresh` is true."""

    attempt_id: AttemptId
    fresh: bool
    checkpoint: CheckpointInfo | None
    passed_over: list[PassedOver]


class LatestAnswer(Answer):
    """The last consistent checkpoint on the current line, or None, with what was passed over for it."""

    checkpoint: CheckpointInfo | None
    passed_over: list[PassedOver]


class InventoryTensor(Request):
    """One tensor a rank holds whole and in plain form; `names` are sorted and unique within an inventory."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    dtype: str
    shape: list[Size]
    kind: int


class PostInventory(Request):
    """PUT /v1/attempts/{attempt}/inventories/{layout}/{rank}: what this rank holds as plain tensors.

    `layout` numbers the layouts of an attempt, counted alike on all ranks. Idempotent; other content is
    `inventory_disagrees`.
    """

    tensors: list[InventoryTensor] = Field(max_length=1_000_000)


class InventoryAnswer(Answer):
    """The owners once every rank has posted; until then `complete` is false and `waiting_for` names ranks.

    The three lists run along the rank's own posted tensors. Tensor i is held by `holders[i]` ranks; this rank is the
    `position[i]`-th of them and the `owner[i]`-th stores it. At save n the one at
    `(owner + 1 + n % (holders - 1)) % holders` fingerprints it too (the witness), so every replica is compared in turn.
    Buffers are owned by each holder.
    """

    complete: bool
    waiting_for: list[int] = Field(default_factory=list)
    holders: list[int] = Field(default_factory=list)
    position: list[int] = Field(default_factory=list)
    owner: list[int] = Field(default_factory=list)


# --- checkpoints ---------------------------------------------------------------------------------------------------


class CheckpointState(StrEnum):
    """The life of a checkpoint; `aborted` and `purged` are final."""

    OPEN = "open"
    VALIDATING = "validating"
    COMMITTED = "committed"
    ABORTED = "aborted"
    DELETED = "deleted"
    PURGED = "purged"


class OpenCheckpoint(Request):
    """POST /v1/attempts/{attempt}/checkpoints: (attempt, save) is the checkpoint; the first creates, the rest join."""

    save: Step
    step: Step
    rank: Rank
    world_size: WorldSize


class OpenAnswer(Answer):
    """The checkpoint this rank now takes part in. `parent_id` is what unchanged segments may be reused from.

    `arrived` is true when this rank's manifest is already in (a repeated open after a crash or a lost answer).
    """

    checkpoint_id: CheckpointId
    state: CheckpointState
    parent_id: CheckpointId | None
    lease_seconds: float
    arrived: bool


class AbortCheckpoint(Request):
    """POST /v1/checkpoints/{checkpoint}/abort. Idempotent; a committed checkpoint is a conflict."""

    rank: Rank
    reason: Reason


class AbortInfo(Answer):
    """Why a checkpoint was aborted, and by or because of which rank."""

    code: str
    reason: str
    rank: int | None = None
    ranks: list[int] = Field(default_factory=list)
    tensors: list[str] = Field(default_factory=list)


class StateAnswer(Answer):
    """Answer to open polls and beats: GET .../state and POST .../sessions/{rank}/beat.

    `missing_chunks` names digests this rank's manifest needs and the service lost or found damaged: upload them
    again and repeat the manifest.
    """

    checkpoint_id: CheckpointId
    state: CheckpointState
    arrived: int
    world_size: int
    waiting_for: list[int] = Field(default_factory=list)
    abort: AbortInfo | None = None
    missing_chunks: list[Digest] = Field(default_factory=list)


class ChunkOffer(Request):
    """One chunk a rank wants stored."""

    digest: Digest
    size: Annotated[int, Field(ge=1, le=2**33)]
    crc64: Annotated[int, Field(ge=0, lt=2**64)]


class NegotiateChunks(Request):
    """POST /v1/checkpoints/{checkpoint}/chunks/negotiate."""

    rank: Rank
    chunks: list[ChunkOffer] = Field(min_length=1, max_length=NEGOTIATE_LIMIT)


class Target(Answer):
    """Where to send or fetch bytes. A relative `url` is on the service and takes the token; others take none."""

    method: Literal["PUT", "GET"]
    url: str
    headers: dict[str, str] = Field(default_factory=dict)
    expires_at: datetime | None = None


class ChunkAnswer(Answer):
    """`present`, or the target to upload to."""

    digest: Digest
    present: bool
    target: Target | None = None


class NegotiateAnswer(Answer):
    """One answer per offered chunk, in the same order."""

    chunks: list[ChunkAnswer]


class CheckpointReport(Answer):
    """What validation found worth telling; none of it stops a commit."""

    divergent_buffers: list[str] = Field(default_factory=list)
    per_rank_values: list[str] = Field(default_factory=list)
    tensors_gone: list[str] = Field(default_factory=list)
    """In the parent and named by nobody now."""
    warnings: list[str] = Field(default_factory=list)


class CheckpointSummary(Answer):
    """A checkpoint in a list."""

    id: CheckpointId
    project: str
    run: str
    attempt_id: AttemptId
    attempt_number: int
    save: int
    step: int
    world_size: int
    state: CheckpointState
    sequence: int | None
    """Commit sequence within the run; the order of `latest`."""
    on_line: bool
    """Whether it is on the line of the run's current attempt."""
    pinned: bool
    quarantined: bool
    opened_at: datetime
    committed_at: datetime | None
    raw_bytes: int | None
    stored_bytes: int | None
    new_bytes: int | None
    """Bytes this checkpoint brought; the rest were present."""
    metrics: dict[str, Metric]
    version: int
    """Counts changes; the ETag that delete, restore and pin must carry."""


class CheckpointInfo(CheckpointSummary):
    """One checkpoint, whole."""

    parent_id: CheckpointId | None
    arrived: int
    missing_ranks: list[int]
    abort: AbortInfo | None
    report: CheckpointReport | None
    environment: dict[str, Any]
    tensors: int | None
    pin_reason: str | None
    deleted_at: datetime | None


class PinCheckpoint(Request):
    """PUT /v1/checkpoints/{checkpoint}/pin."""

    reason: Annotated[str, StringConstraints(max_length=1000)] = ""


class TensorInfo(Answer):
    """One tensor of a committed checkpoint."""

    name: str
    dtype: str
    shape: list[int]
    kind: str
    raw_bytes: int
    slices: int


class ReadTargets(Answer):
    """POST /v1/checkpoints/{checkpoint}/chunks/targets: where to fetch chunks, in the order asked."""

    targets: list[Target]


class AskReadTargets(Request):
    """The chunks a reader wants targets for."""

    digests: list[Digest] = Field(min_length=1, max_length=NEGOTIATE_LIMIT)


class ReportDamage(Request):
    """POST /v1/checkpoints/{checkpoint}/damage: a reader found bytes that do not match; the service re-reads them."""

    digests: list[Digest] = Field(min_length=1, max_length=NEGOTIATE_LIMIT)


class DamageAnswer(Answer):
    """What the service found of the reported chunks: really damaged, whole after all, or still to be read."""

    damaged: list[Digest]
    whole: list[Digest]
    pending: list[Digest]


class Page(Answer, Generic[Item]):
    """One page of a list; `next_cursor` is None at the end."""

    items: list[Item]
    next_cursor: str | None = None


for _model in (RunInfo, PassedOver, ResumeDecision, LatestAnswer):
    _model.model_rebuild()
