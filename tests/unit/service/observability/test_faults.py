"""The fault hook: what may be written, and which requests it matches."""

from __future__ import annotations

import pytest

from shardkeep.protocol import routes
from shardkeep_service.observability.faults import parse_fault


def test_a_fault_names_kind_method_route_count_and_moment() -> None:
    fault = parse_fault(f"kill:PUT {routes.MANIFEST}:3:after")
    assert (fault.kind, fault.method, fault.nth, fault.when) == ("kill", "PUT", 3, "after")
    assert fault.path.fullmatch("/v1/checkpoints/ckp_1/manifests/0")
    assert not fault.path.fullmatch("/v1/checkpoints/ckp_1/manifests/0/1")
    assert not fault.path.fullmatch("/v1/checkpoints/ckp_1/chunks/0")


@pytest.mark.parametrize(
    "text",
    ["", "kill", "kill:PUT", "stop:PUT /x:1:after", "kill:put /x:1:after", "kill:PUT x:1:after", "drop:GET /x:1:"],
)
def test_anything_else_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ValueError, match="not a fault"):
        parse_fault(text)
