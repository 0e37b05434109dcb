"""Differences of checkpoints: totals and pages by name, of any two that the token may see, compared once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardkeep.format.index import Index
from shardkeep.format.index_difference import IndexDifference, compare_indexes
from shardkeep.format.names import join_name
from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.checkpoints import differences
from tests.unit.service.access.holders import first_admin
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Part, Training, pack

pytestmark = BOTH_DATABASES


def save_rows(training: Training, rows: dict[str, np.ndarray[Any, Any]], *, save: int = 1) -> str:
    parts = [Part(name, data.shape, 0, data.astype(np.float32)) for name, data in rows.items()]
    packed = [pack(parts, rank=0, world_size=1, step=save)]
    return training.save(training.start(1), save=save, step=save, world_size=1, packed=packed)


def difference(training: Training, checkpoint: str, other: str, **query: str | int) -> dict[str, Any]:
    path = routes.path(routes.DIFFERENCES, checkpoint=checkpoint, other=other)
    return training.service.ask("GET", path, query=query)


def names(answer: dict[str, Any]) -> list[str]:
    return [item["name"] for item in answer["items"]]


ROW = np.arange(4.0).reshape(1, 4)
NESTED = join_name(("model", "B.c"))
BEFORE = {"gone": ROW, "same": ROW, "other.shape": ROW, "model.a": ROW, NESTED: ROW}
AFTER = {"new": ROW, "same": ROW, "other.shape": ROW.reshape(2, 2), "model.a": ROW + 1, NESTED: ROW + 2}


def test_the_difference_of_two_checkpoints_of_different_runs(training: Training) -> None:
    elsewhere = Training(training.service, project="another", run="run2")
    other, mine = save_rows(elsewhere, BEFORE), save_rows(training, AFTER)

    answer = difference(training, mine, other)

    assert (answer["checkpoint"]["id"], answer["other"]["id"]) == (mine, other)
    assert (answer["checkpoint"]["run"], answer["other"]["run"]) == ("run", "run2")
    counts = {name: answer[name] for name in ("added", "removed", "changed", "reshaped", "recut", "same")}
    assert counts == {"added": 1, "removed": 1, "changed": 2, "reshaped": 1, "recut": 0, "same": 1}
    assert (answer["same_bytes"], answer["changed_bytes"]) == (16, 64)
    plain = {"dtype": "float32", "raw_bytes": 16, "changed_bytes": 16, "other_dtype": None, "other_shape": None}
    assert answer["items"] == [
        {**plain, "name": "gone", "change": "removed", "shape": [1, 4]},
        {**plain, "name": NESTED, "change": "changed", "shape": [1, 4]},
        {**plain, "name": "model.a", "change": "changed", "shape": [1, 4]},
        {**plain, "name": "new", "change": "added", "shape": [1, 4]},
        {
            **plain,
            "name": "other.shape",
            "change": "reshaped",
            "shape": [2, 2],
            "other_dtype": "float32",
            "other_shape": [1, 4],
        },
    ]
    assert difference(training, mine, mine)["same"] == 5


def test_differences_are_narrowed_and_paged_and_the_totals_stay(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, mine = save_rows(training, BEFORE), save_rows(training, AFTER, save=2)
    compared: list[tuple[Index, Index]] = []

    def compare(index: Index, other: Index) -> IndexDifference:
        compared.append((index, other))
        return compare_indexes(index, other)

    monkeypatch.setattr(differences, "compare_indexes", compare)

    whole = difference(training, mine, other)
    pages: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = difference(training, mine, other, limit=2, **cursor)
        pages += answer["items"]
        assert answer["changed"] == 2
        if answer["next_cursor"] is None:
            break
        cursor = {"cursor": answer["next_cursor"]}

    assert pages == whole["items"]
    assert names(difference(training, mine, other, change="changed")) == [NESTED, "model.a"]
    assert names(difference(training, mine, other, change="recut")) == []
    assert names(difference(training, mine, other, search="MODEL.b.C")) == [NESTED]
    assert names(difference(training, mine, other, change="changed", limit=1, search="model")) == [NESTED]
    assert len(compared) == 1
    path = routes.path(routes.DIFFERENCES, checkpoint=mine, other=other)
    wrong = {"cursor": difference(training, mine, other, limit=1)["next_cursor"], "search": "x"}
    training.service.refused("invalid_cursor", "GET", path, query=wrong)
    training.service.refused("malformed_request", "GET", path, query={"change": "same"})


def test_another_world_size_is_recut_where_fingerprints_cannot_tell(training: Training) -> None:
    whole = np.arange(48, dtype=np.float32).reshape(12, 4)

    def save(world_size: int, save: int) -> str:
        rows = 12 // world_size
        packed = [
            pack(
                [Part("w", (12, 4), rank * rows, whole[rank * rows : (rank + 1) * rows])],
                rank=rank,
                world_size=world_size,
                step=save,
            )
            for rank in range(world_size)
        ]
        attempt = training.start(world_size)
        return training.save(attempt, save=save, step=save, world_size=world_size, packed=packed)

    two, three = save(2, 1), save(3, 2)

    answer = difference(training, three, two)

    assert [(item["name"], item["change"], item["changed_bytes"]) for item in answer["items"]] == [("w", "recut", 192)]
    assert (answer["recut"], answer["changed"], answer["same"]) == (1, 0, 0)


def test_either_side_is_hidden_from_a_token_of_another_project_or_run(training: Training) -> None:
    elsewhere = Training(training.service, project="another", run="run")
    beside = Training(training.service, run="beside")
    mine, near, far = save_rows(training, BEFORE), save_rows(beside, BEFORE), save_rows(elsewhere, BEFORE)
    assert difference(training, mine, far)["same"] == 5  # an admin's answer, kept by now

    bound = {"authorization": f"Bearer {training.service.new_token(Scope.ADMIN, project='project')}"}
    job = first_admin(training.service).mint()
    for one, two in ((mine, far), (far, mine)):
        path = routes.path(routes.DIFFERENCES, checkpoint=one, other=two)
        training.service.refused("unknown_checkpoint", "GET", path, headers=bound)
        job.refused("unknown_checkpoint", "GET", path)
    for one, two in ((mine, near), (near, mine)):
        path = routes.path(routes.DIFFERENCES, checkpoint=one, other=two)
        assert training.service.ask("GET", path, headers=bound)["same"] == 5
        job.refused("unknown_checkpoint", "GET", path)


def test_only_what_is_committed_is_compared(training: Training) -> None:
    saved = save_rows(training, BEFORE)
    open_one = training.open_all(training.start(), save=1, step=1)

    for one, two in ((saved, open_one), (open_one, saved)):
        path = routes.path(routes.DIFFERENCES, checkpoint=one, other=two)
        training.service.refused("checkpoint_not_committed", "GET", path)


def test_a_difference_takes_the_memory_of_its_columns_and_names(training: Training) -> None:
    other, mine = save_rows(training, BEFORE), save_rows(training, AFTER, save=2)
    difference(training, mine, other)

    kept = training.service.control.differences

    assert len(kept.keys) == 1
    assert 1000 < kept.held_bytes < 10_000
