"""Names and metadata that are too long or cannot be encoded: told before anything is sent, by name."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import ConfigurationError, FormatError, InvalidRequest, NotFound, ShardkeepError, StateError
from shardkeep.protocol import routes
from tests.failures.bad_input.kept_checkpoint import Kept, assert_says
from tests.integration.service.process_client import ProcessClient

TOO_LONG = "n" * 4097


class Opaque:
    """Can be pickled and not stored."""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (TOO_LONG, "at most 4096"),
        ("é" * 2049, "at most 4096"),
        ("lone \ud800 surrogate", "lone surrogates"),
        ("with\0nul", "NUL"),
        ("@value", "begins with @"),
    ],
)
@pytest.mark.parametrize("leaf", [np.zeros(3), 5])
def test_a_tensor_name_that_cannot_be_stored(kept: Kept, name: str, says: str, leaf: Any) -> None:
    run = kept.other_run_object()
    run.resume()
    with pytest.raises((FormatError, StateError), match=says):
        run.save(11, {"fine": np.zeros(2), name: leaf})
    if not name.startswith("@"):
        with pytest.raises((FormatError, StateError), match=says):
            run.save(11, {"fine": {"a": np.zeros(2), name: leaf}})
    run.close()


@pytest.mark.parametrize(
    ("state", "metrics", "says"),
    [
        ({"value": Opaque()}, {}, "value"),
        ({"value": {"deep": [1, {"er": Opaque()}]}}, {}, "er"),
        ({"value": lambda: None}, {}, "value"),
        ({"value": "lone \ud800 surrogate"}, {}, "value"),
        ({"value": np.array([Opaque()], dtype=object)}, {}, "value"),
        ({}, {"m" * 201: 1.0}, "200"),
        ({}, {"": 1.0}, "metric"),
        ({}, {"lone \ud800": 1.0}, "metric|surrogate"),
        ({}, {"loss": "low"}, "loss"),
        ({}, {7: 1.0}, "metric"),
        ({}, {"loss": [1.0, 2.0]}, "loss"),
    ],
)
def test_metadata_that_cannot_be_stored(kept: Kept, state: dict[str, Any], metrics: Any, says: str) -> None:
    assert pickle.dumps(Opaque()) is not None
    run = kept.other_run_object()
    run.resume()
    with pytest.raises(ShardkeepError, match=says):
        run.save(11, {"w": np.zeros(3), **state}, metrics).wait(60)
    with contextlib.suppress(ShardkeepError):
        run.close()
    with pytest.raises(NotFound):
        kept.other_run_object().checkpoint(11)


@pytest.mark.parametrize(
    "name", ["x" * 129, "-starts-with-a-dash", "has space", "é", "e\u0301", "a\0b", "ends.", "a\\b", "a%2fb"]
)
def test_a_run_name_that_cannot_be(kept: Kept, name: str) -> None:
    for run in (kept.client.run(f"{kept.run.project}/{name}"), kept.client.run(f"{name}/run")):
        with pytest.raises(InvalidRequest) as caught:
            run.save(1, {"epoch": 1})
        assert_says(caught.value, "invalid_name", "use 1 to 128 of")
    for text in ("", "/", f"{name}", f"a/{name}/b", "a/", "/a", "a/..", "./a", "../a"):
        with pytest.raises(ConfigurationError, match=r"project/run|only dots"):
            kept.client.run(text)
    labels = {"launch_id": "ab" * 16, "ordinal": 0, "world_size": 1, "labels": {"job": "x" * 1001}}
    path = routes.path(routes.RUN_ATTEMPTS, project=kept.run.project, run=kept.run.name)
    problem = ProcessClient(kept.service).refused("malformed_request", "POST", path, labels)
    assert_says(problem, "malformed_request", r"labels.*1000")
    assert isinstance(kept.client, sk.Client)
