"""W3C trace context: a valid trace goes on, anything else begins a new one; answers and log lines name it."""

from __future__ import annotations

import re

import pytest
from structlog.testing import capture_logs

from shardkeep_service.observability.trace_context import TraceContext, begin_trace
from tests.unit.service.local_service import LocalService
from tests.waiting import wait_until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = f"00-{TRACE}-{SPAN}-01"


def begun(*headers: tuple[str, str]) -> TraceContext:
    return begin_trace({"headers": [(name.encode(), value.encode("latin-1")) for name, value in headers]})


def test_a_valid_trace_goes_on_under_a_span_of_ours() -> None:
    context = begun(("traceparent", VALID), ("tracestate", "vendor=1"))
    assert (context.trace_id, context.parent_id, context.sampled) == (TRACE, SPAN, True)
    assert context.span_id != SPAN
    assert context.state == "vendor=1"
    assert context.header == f"00-{TRACE}-{context.span_id}-01"


def test_a_later_version_may_have_more_members() -> None:
    assert begun(("traceparent", f"cc-{TRACE}-{SPAN}-01-what-the-future-brings")).trace_id == TRACE


@pytest.mark.parametrize(
    "value",
    [
        "",
        "nonsense",
        VALID.upper(),
        f"{VALID}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f" {VALID}",
        "00-" + "é" * 32 + f"-{SPAN}-01",
        VALID * 1000,
    ],
)
def test_what_is_not_valid_begins_a_new_trace(value: str) -> None:
    context = begun(("traceparent", value))
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", context.header)
    assert (context.trace_id == TRACE, context.parent_id) == (False, None)


def test_two_traces_are_none() -> None:
    assert begun(("traceparent", VALID), ("traceparent", VALID)).trace_id != TRACE


@pytest.mark.parametrize("state", ["", "x" * 513, "a\x00b"])
def test_a_malformed_state_is_dropped_and_the_trace_kept(state: str) -> None:
    context = begun(("traceparent", VALID), ("tracestate", state))
    assert (context.trace_id, context.state) == (TRACE, None)


@pytest.mark.parametrize("path", ["/v1/projects", "/v1/projects/nope", "/nowhere"])
def test_answers_and_log_lines_name_the_trace_errors_too(local: LocalService, path: str) -> None:
    with capture_logs() as lines:
        answer = local.send("GET", path, headers={"traceparent": VALID})
        wait_until(lambda: any(line["event"] == "request" for line in lines))  # written once it is answered
    assert re.fullmatch(rf"00-{TRACE}-[0-9a-f]{{16}}-01", answer.headers["traceparent"])
    assert [line["trace_id"] for line in lines if line["event"] == "request"] == [TRACE]
