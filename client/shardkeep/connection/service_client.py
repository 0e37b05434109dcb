"""The service's routes as typed methods: one method a route, retried, with errors of `shardkeep.errors`."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ValidationError

from shardkeep.connection.bodies import PartsBody
from shardkeep.connection.direct_access import DirectAccess
from shardkeep.connection.range_reads import read_range
from shardkeep.connection.retries import RetryPolicy
from shardkeep.connection.store_answers import is_there_already, lowered
from shardkeep.connection.target_lifetimes import is_on_service
from shardkeep.connection.transport import HttpAnswer, HttpRequest, Transport
from shardkeep.errors import FormatError, ServiceError
from shardkeep.format.load_plan import LoadPlan, LoadRequest, decode_load_plan, encode_load_request
from shardkeep.format.segments import ChunkRef
from shardkeep.protocol import routes
from shardkeep.protocol.messages import (
    AbortCheckpoint,
    AskReadTargets,
    AttemptInfo,
    BeginAttempt,
    Capabilities,
    CheckpointInfo,
    CheckpointState,
    CheckpointSummary,
    ChunkOffer,
    DamageAnswer,
    DecideResume,
    InventoryAnswer,
    LatestAnswer,
    NegotiateAnswer,
    NegotiateChunks,
    OpenAnswer,
    OpenCheckpoint,
    Page,
    PinCheckpoint,
    PostInventory,
    ProjectInfo,
    ReadTargets,
    ReportDamage,
    ResumeDecision,
    RunInfo,
    StateAnswer,
    Target,
    TensorInfo,
)
from shardkeep.protocol.versions import LIST_LIMIT

Model = TypeVar("Model", bound=BaseModel)
Query = Mapping[str, str | int | float | bool | None]


class ServiceClient:
    """Every request the client makes. Thread-safe; repeats are harmless, since every route is idempotent."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.direct = DirectAccess()

    def close(self) -> None:
        """Drop the connections."""
        self.transport.close()

    def capabilities(self) -> Capabilities:
        """What the service speaks and allows."""
        return self._ask("GET", routes.CAPABILITIES, Capabilities)

    # --- projects and runs -------------------------------------------------------------------------------------------

    def projects(self) -> Iterator[ProjectInfo]:
        """All projects the token may see."""
        return self._pages(routes.PROJECTS, Page[ProjectInfo])

    def runs(self, project: str) -> Iterator[RunInfo]:
        """All runs of a project."""
        return self._pages(routes.path(routes.RUNS, project=project), Page[RunInfo])

    def ensure_run(self, project: str, run: str) -> RunInfo:
        """The run, made now if it did not exist; then `created` is true."""
        return self._ask("PUT", routes.path(routes.RUN, project=project, run=run), RunInfo)

    def run_info(self, project: str, run: str) -> RunInfo:
        """The run; NotFound if there is none."""
        return self._ask("GET", routes.path(routes.RUN, project=project, run=run), RunInfo)

    def latest(self, project: str, run: str) -> LatestAnswer:
        """The last consistent checkpoint on the run's line, with what was passed over for it."""
        return self._ask("GET", routes.path(routes.LATEST, project=project, run=run), LatestAnswer)

    def checkpoints(
        self,
        project: str,
        run: str,
        *,
        limit: int | None = None,
        state: CheckpointState | None = None,
        step: int | None = None,
        step_min: int | None = None,
        step_max: int | None = None,
        pinned: bool | None = None,
        on_line: bool | None = None,
        attempt: str | None = None,
        tag: str | None = None,
    ) -> Iterator[CheckpointSummary]:
        """The run's checkpoints, newest first, page by page; `limit` bounds the whole list."""
        query: Query = {
            "state": state.value if state else None,
            "step": step,
            "step_min": step_min,
            "step_max": step_max,
            "pinned": pinned,
            "on_line": on_line,
            "attempt": attempt,
            "tag": tag,
        }
        url = routes.path(routes.RUN_CHECKPOINTS, project=project, run=run)
        return self._pages(url, Page[CheckpointSummary], query, limit=limit)

    def run_attempts(self, project: str, run: str) -> Iterator[AttemptInfo]:
        """The run's attempts, newest first."""
        return self._pages(routes.path(routes.RUN_ATTEMPTS, project=project, run=run), Page[AttemptInfo])

    # --- attempts ----------------------------------------------------------------------------------------------------

    def begin_attempt(self, project: str, run: str, message: BeginAttempt) -> AttemptInfo:
        """The attempt of (launch_id, ordinal); from now on older ones are fenced."""
        self.direct.try_again()
        url = routes.path(routes.RUN_ATTEMPTS, project=project, run=run)
        return self._ask("POST", url, AttemptInfo, message)

    def attempt(self, attempt_id: str) -> AttemptInfo:
        """One attempt."""
        return self._ask("GET", routes.path(routes.ATTEMPT, attempt=attempt_id), AttemptInfo)

    def decide_resume(self, attempt_id: str, message: DecideResume) -> ResumeDecision:
        """What all ranks of the attempt resume from; the first to ask decides."""
        return self._ask("POST", routes.path(routes.RESUME, attempt=attempt_id), ResumeDecision, message)

    def put_inventory(self, attempt_id: str, layout: int, rank: int, message: PostInventory) -> InventoryAnswer:
        """Post what this rank holds; the owners once every rank has posted."""
        return self._ask("PUT", _inventory(attempt_id, layout, rank), InventoryAnswer, message)

    def wait_inventory(self, attempt_id: str, layout: int, rank: int, *, wait_seconds: float) -> InventoryAnswer:
        """Wait until every rank has posted, at most `wait_seconds`."""
        url = _inventory(attempt_id, layout, rank)
        return self._ask("GET", url, InventoryAnswer, query={"wait_seconds": wait_seconds}, wait_seconds=wait_seconds)

    def open_checkpoint(self, attempt_id: str, message: OpenCheckpoint) -> OpenAnswer:
        """Take part in the checkpoint of (attempt, save)."""
        return self._ask("POST", routes.path(routes.ATTEMPT_CHECKPOINTS, attempt=attempt_id), OpenAnswer, message)

    # --- a checkpoint being saved ------------------------------------------------------------------------------------

    def beat(self, checkpoint_id: str, rank: int) -> StateAnswer:
        """Renew this rank's session and learn the state."""
        return self._ask("POST", routes.path(routes.BEAT, checkpoint=checkpoint_id, rank=rank), StateAnswer)

    def state(
        self,
        checkpoint_id: str,
        *,
        known: CheckpointState | None = None,
        arrived: int | None = None,
        rank: int | None = None,
        wait_seconds: float = 0.0,
    ) -> StateAnswer:
        """The state, once it differs from `known` and `arrived` or after `wait_seconds`."""
        query: Query = {
            "known": known.value if known else None,
            "arrived": arrived,
            "rank": rank,
            "wait_seconds": wait_seconds or None,
        }
        url = routes.path(routes.STATE, checkpoint=checkpoint_id)
        return self._ask("GET", url, StateAnswer, query=query, wait_seconds=wait_seconds)

    def abort(self, checkpoint_id: str, *, rank: int, reason: str, retry_seconds: float = 10.0) -> StateAnswer:
        """End an open checkpoint, so that no rank waits for this one; without it the session lapses a little later."""
        message = AbortCheckpoint(rank=rank, reason=reason[:2000])
        url = routes.path(routes.ABORT, checkpoint=checkpoint_id)
        policy = RetryPolicy(window_seconds=retry_seconds)
        return _parsed(self._call("POST", url, message, policy=policy), StateAnswer, url)

    def negotiate(
        self, checkpoint_id: str, rank: int, offers: Sequence[ChunkOffer], *, direct: bool
    ) -> NegotiateAnswer:
        """For each chunk: present, or where to send it; at most the service's `negotiate_limit` at a time.

        Without `direct` the service takes the bytes itself.
        """
        message = NegotiateChunks(rank=rank, chunks=list(offers), direct=direct)
        return self._ask("POST", routes.path(routes.NEGOTIATE, checkpoint=checkpoint_id), NegotiateAnswer, message)

    def put_chunk(
        self, target: Target, ref: ChunkRef, parts: Sequence[memoryview], *, stop: threading.Event | None = None
    ) -> None:
        """Send a chunk's bytes from where they lie; `stop` ends retrying."""
        if not is_on_service(target):
            self._put_directly(target, parts, stop=stop)
            return
        headers = {"content-type": routes.BINARY_CONTENT_TYPE, **target.headers}
        headers.setdefault(routes.CRC64_HEADER, f"{ref.crc64:016x}")
        self.transport.call(HttpRequest(target.method, target.url, PartsBody(parts), headers), stop=stop)

    def _put_directly(self, target: Target, parts: Sequence[memoryview], *, stop: threading.Event | None) -> None:
        """Exactly the signed headers go to the store. An object that is there already was checked when it came."""
        request = HttpRequest(target.method, target.url, PartsBody(parts), lowered(target.headers))
        try:
            with self.direct.asking():
                self.transport.call(request, policy=self.direct.policy(self.transport.policy), stop=stop)
        except ServiceError as refusal:
            if not is_there_already(refusal):
                raise

    def put_manifest(self, checkpoint_id: str, rank: int, data: bytes) -> StateAnswer:
        """Hand in what this rank saved."""
        url = routes.path(routes.MANIFEST, checkpoint=checkpoint_id, rank=rank)
        return _parsed(self._send_bytes("PUT", url, data), StateAnswer, url)

    # --- a checkpoint being read -------------------------------------------------------------------------------------

    def checkpoint(self, checkpoint_id: str) -> CheckpointInfo:
        """One checkpoint, whole, in any state."""
        return self._ask("GET", routes.path(routes.CHECKPOINT, checkpoint=checkpoint_id), CheckpointInfo)

    def manifest(self, checkpoint_id: str, rank: int) -> bytes:
        """One rank's encoded manifest."""
        url = routes.path(routes.MANIFEST, checkpoint=checkpoint_id, rank=rank)
        return self.transport.call(HttpRequest("GET", url)).body

    def tensors(self, checkpoint_id: str, *, prefix: str | None = None) -> Iterator[TensorInfo]:
        """The checkpoint's tensors by name, page by page."""
        url = routes.path(routes.TENSORS, checkpoint=checkpoint_id)
        return self._pages(url, Page[TensorInfo], {"prefix": prefix})

    def load_plan(self, checkpoint_id: str, request: LoadRequest) -> LoadPlan:
        """Which segments hold what is asked for, and where they are."""
        url = routes.path(routes.LOAD_PLAN, checkpoint=checkpoint_id)
        return decode_load_plan(self._send_bytes("POST", url, encode_load_request(request)).body)

    def read_targets(self, checkpoint_id: str, digests: Sequence[str], *, direct: bool) -> list[Target]:
        """Where to fetch chunks, in the order asked; at most the service's `negotiate_limit` at a time.

        Without `direct` the service gives the bytes itself.
        """
        url = routes.path(routes.READ_TARGETS, checkpoint=checkpoint_id)
        message = AskReadTargets(digests=list(digests), direct=direct)
        return self._ask("POST", url, ReadTargets, message).targets

    def read_range_into(self, target: Target, chunk: ChunkRef, offset: int, parts: Sequence[memoryview]) -> None:
        """Fill `parts`, one after another, with the chunk's stored bytes from `offset` on."""
        if is_on_service(target):
            read_range(self.transport, target, chunk, offset, parts)
            return
        with self.direct.asking():
            policy = self.direct.policy(self.transport.policy)
            read_range(self.transport, target, chunk, offset, parts, policy=policy)

    def report_damage(self, checkpoint_id: str, digests: Sequence[str]) -> DamageAnswer:
        """Tell the service that stored bytes did not match; it reads them again itself."""
        url = routes.path(routes.DAMAGE, checkpoint=checkpoint_id)
        return self._ask("POST", url, DamageAnswer, ReportDamage(digests=list(digests)))

    # --- a checkpoint being kept or let go; `version` is the one the caller saw --------------------------------------

    def delete(self, checkpoint_id: str, version: int, *, attempt_id: str | None = None) -> CheckpointInfo:
        """Delete, restorable until it is purged."""
        return self._change("DELETE", routes.CHECKPOINT, checkpoint_id, version, attempt_id=attempt_id)

    def restore(self, checkpoint_id: str, version: int) -> CheckpointInfo:
        """Undo a delete."""
        return self._change("POST", routes.RESTORE, checkpoint_id, version)

    def accept(self, checkpoint_id: str, version: int) -> CheckpointInfo:
        """Commit what a rebuild of the service's catalogue found whole, without a record of its commit."""
        return self._change("POST", routes.ACCEPT, checkpoint_id, version)

    def pin(self, checkpoint_id: str, version: int, *, reason: str = "") -> CheckpointInfo:
        """Keep whatever retention says."""
        return self._change("PUT", routes.PIN, checkpoint_id, version, PinCheckpoint(reason=reason))

    def unpin(self, checkpoint_id: str, version: int) -> CheckpointInfo:
        """Leave it to retention again."""
        return self._change("DELETE", routes.PIN, checkpoint_id, version)

    # --- how ---------------------------------------------------------------------------------------------------------

    def _change(
        self,
        method: str,
        template: str,
        checkpoint_id: str,
        version: int,
        message: BaseModel | None = None,
        *,
        attempt_id: str | None = None,
    ) -> CheckpointInfo:
        headers = {"if-match": f'"{version}"'}
        if attempt_id is not None:
            headers[routes.ATTEMPT_HEADER] = attempt_id
        url = routes.path(template, checkpoint=checkpoint_id)
        return _parsed(self._call(method, url, message, headers=headers), CheckpointInfo, url)

    def _ask(
        self,
        method: str,
        url: str,
        answer: type[Model],
        message: BaseModel | None = None,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
    ) -> Model:
        url += _query_text(query or {})
        return _parsed(self._call(method, url, message, headers=headers, wait_seconds=wait_seconds), answer, url)

    def _call(
        self,
        method: str,
        url: str,
        message: BaseModel | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        wait_seconds: float = 0.0,
        policy: RetryPolicy | None = None,
    ) -> HttpAnswer:
        sent = {"accept": "application/json", **(headers or {})}
        body = None
        if message is not None:
            sent["content-type"] = "application/json"
            # Without what is as always: an older service, which knows fewer members, refuses none it need not know.
            body = message.model_dump_json(exclude_defaults=True).encode()
        timeout = wait_seconds + 30.0 if wait_seconds else None
        return self.transport.call(HttpRequest(method, url, body, sent, read_timeout_seconds=timeout), policy=policy)

    def _send_bytes(self, method: str, url: str, data: bytes) -> HttpAnswer:
        return self.transport.call(HttpRequest(method, url, data, {"content-type": routes.BINARY_CONTENT_TYPE}))

    def _pages(
        self, url: str, page_type: type[Page[Model]], query: Query | None = None, *, limit: int | None = None
    ) -> Iterator[Model]:
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            asked = {**(query or {}), "cursor": cursor, "limit": LIST_LIMIT if left is None else min(left, LIST_LIMIT)}
            page = self._ask("GET", url, page_type, query=asked)
            yield from page.items if left is None else page.items[:left]
            left = None if left is None else left - len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return


def _inventory(attempt_id: str, layout: int, rank: int) -> str:
    return routes.path(routes.INVENTORY, attempt=attempt_id, layout=layout, rank=rank)


def _query_text(query: Query) -> str:
    given = {name: _query_value(value) for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _query_value(value: str | float | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(answer: HttpAnswer, model: type[Model], url: str) -> Model:
    try:
        return model.model_validate_json(answer.body)
    except ValidationError as exc:
        raise FormatError(
            f"{url.partition('?')[0]} was not answered with a {model.__name__} ({exc.error_count()} members do not "
            "fit); is this a Shardkeep service, and not older than the client?"
        ) from exc
