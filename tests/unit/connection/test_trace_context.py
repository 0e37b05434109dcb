"""The client's trace: that of the environment where there is a valid one, and a span for each request."""

from __future__ import annotations

import re

import pytest

from shardkeep.connection.trace_context import Trace

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_the_environments_trace_goes_on_with_a_span_of_its_own_each_time() -> None:
    trace = Trace({"TRACEPARENT": f"00-{TRACE}-{SPAN}-01"})
    first, second = trace.header(), trace.header()
    assert re.fullmatch(rf"00-{TRACE}-[0-9a-f]{{16}}-01", first)
    assert first != second
    assert SPAN not in first


@pytest.mark.parametrize(
    "given", ["", "nonsense", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{SPAN}-01"]
)
def test_without_a_valid_trace_the_process_makes_one(given: str) -> None:
    trace = Trace({"TRACEPARENT": given})
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", trace.header())
    assert trace.header().split("-")[1] == trace.trace_id != Trace({}).trace_id
