"""Values for people to look at: global and per rank, by kind and page, read within bounds and never loaded."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from shardkeep.format.names import join_name
from shardkeep.format.segments import ValueRecord
from shardkeep.format.values import encode_value
from shardkeep.protocol import routes
from shardkeep.pytorch.rng import RNG_PATH
from shardkeep.pytorch.sampler import ResumableSampler
from shardkeep.pytorch.saving import LOOP_PATH
from shardkeep_service.checkpoints import values
from shardkeep_service.checkpoints.models import ManifestRow
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.fetched_rows import counted
from tests.unit.service.training import Packed, Part, Training, pack, weights

pytestmark = BOTH_DATABASES


def record(value: object, *path: str, per_rank: bool = False) -> ValueRecord:
    return ValueRecord(join_name(path), encode_value(value), per_rank)


def packed_with(
    by_rank: Sequence[Sequence[ValueRecord]], *, metrics: Mapping[str, float] | None = None
) -> list[Packed]:
    world_size = len(by_rank)
    parts: list[list[Part]] = weights(1, world_size)
    return [
        pack(parts[rank], rank=rank, world_size=world_size, step=1, values=records, metrics=metrics)
        for rank, records in enumerate(by_rank)
    ]


def saved_with(training: Training, *by_rank: Sequence[ValueRecord]) -> str:
    world_size = len(by_rank)
    return training.save(training.start(world_size), save=1, step=1, world_size=world_size, packed=packed_with(by_rank))


def page(training: Training, checkpoint: str, **query: str | int) -> dict[str, Any]:
    answer = training.service.send("GET", routes.path(routes.VALUES, checkpoint=checkpoint), query=query)
    assert answer.is_success, answer.content
    found: dict[str, Any] = strict(answer.content)
    return found


def strict(text: bytes | str) -> Any:
    def refuse(constant: str) -> object:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def listed(training: Training, checkpoint: str, *, limit: int = 50, **query: str | int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    following: dict[str, str] = {}
    while True:
        found = page(training, checkpoint, limit=limit, **query, **following)
        items += found["items"]
        if found["next_cursor"] is None:
            return items
        following = {"cursor": found["next_cursor"]}


def _training_values(rank: int) -> list[ValueRecord]:
    sampler = ResumableSampler(8, batch_size=2, rank=0, world_size=1).state_dict()
    return [
        record({"version": 3, "words": bytes(2500), "gauss_next": None}, RNG_PATH, "python", per_rank=True),
        record(bytes(5056), RNG_PATH, "torch", per_rank=True),
        record({"step": 1, "unit": "steps of the training loop"}, *LOOP_PATH),
        *(record(value, "sampler", member) for member, value in sampler.items()),
        record({"_num_yielded": rank, "dataset_state": None}, "loader", per_rank=True),
        record({"lr": 0.1, "rank": rank}, "odd"),
        record("cosine", "schedule", "name"),
    ]


def test_values_are_global_or_one_ranks_and_their_kind_is_told(training: Training) -> None:
    saved = saved_with(training, _training_values(0), _training_values(1))

    found = [(item["name"], item["rank"], item["kind"]) for item in listed(training, saved)]

    own = [("@rng.python", "random"), ("@rng.torch", "random"), ("loader", "position"), ("odd", "value")]
    assert [name for name, rank, _ in found if rank is None] == sorted(
        ["@loop", "schedule.name", *(f"sampler.{member}" for member in ResumableSampler(8, batch_size=2).state_dict())]
    )
    assert {kind for name, _, kind in found if name.startswith(("sampler.", "@loop"))} == {"position"}
    assert [item for item in found if item[1] is not None] == [
        (name, rank, kind) for rank in range(2) for name, kind in own
    ]


def test_values_are_narrowed_by_name_kind_and_rank_and_come_in_pages(training: Training) -> None:
    saved = saved_with(training, _training_values(0), _training_values(1))
    everything = listed(training, saved)

    for limit in (1, 3, len(everything)):
        assert listed(training, saved, limit=limit) == everything
    assert {item["kind"] for item in listed(training, saved, kind="random")} == {"random"}
    assert len(listed(training, saved, kind="random")) == 4
    assert [item["name"] for item in listed(training, saved, search="SCHED")] == ["schedule.name"]
    assert [(item["name"], item["rank"]) for item in listed(training, saved, search="rng", rank=1, limit=1)] == [
        ("@rng.python", 1),
        ("@rng.torch", 1),
    ]
    assert listed(training, saved, rank=2) == []
    path = routes.path(routes.VALUES, checkpoint=saved)
    cursor = page(training, saved, limit=1)["next_cursor"]
    training.service.refused("invalid_cursor", "GET", path, query={"cursor": cursor, "kind": "random"})


def test_a_global_value_that_only_some_ranks_have_is_listed_once(training: Training) -> None:
    some = record(5, "some")
    saved = saved_with(training, [record(1, "all")], [record(1, "all"), some], [record(1, "all"), some])

    found = [(item["name"], item["rank"], item["text"]) for item in listed(training, saved, limit=1)]

    assert found == [("all", None, "1"), ("some", None, "5")]


def test_E191_E192_values_and_metrics_that_json_lacks_stay_what_they_are(training: Training) -> None:
    odd = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "big": 12345678901234567890}
    packed = packed_with([[record(odd, "odd")]], metrics={"loss": math.nan, "up": math.inf, "down": -math.inf})
    saved = training.save(training.start(1), save=1, step=1, world_size=1, packed=packed)

    [item] = listed(training, saved)

    assert strict(item["text"]) == {
        "nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "big": "12345678901234567890",
    }  # fmt: skip
    listing = training.service.send("GET", training.path(routes.RUN_CHECKPOINTS)).content
    assert strict(listing)["items"][0]["metrics"] == {"loss": "NaN", "up": "Infinity", "down": "-Infinity"}
    assert strict(training.service.send("GET", routes.path(routes.CHECKPOINT, checkpoint=saved)).content)


def test_E189_a_pickle_in_a_checkpoint_is_shown_as_bytes_by_every_route(training: Training, tmp_path: Path) -> None:
    written = tmp_path / "written"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (written,)

    blob = pickle.dumps(Payload())
    extra = record({"extra": blob, "array": np.zeros(3)}, "model", "_extra_state")
    saved = saved_with(training, [extra, record(blob, "rng_state", per_rank=True)])

    found = {item["name"]: strict(item["text"]) for item in listed(training, saved)}

    shown = {"$type": "bytes", "size": len(blob), "start": blob[:16].hex()}
    assert found["rng_state"] == shown
    assert found["model._extra_state"]["extra"] == shown
    for template in (routes.CHECKPOINT, routes.RANKS, routes.TENSORS, routes.IMPACT):
        assert training.service.send("GET", routes.path(template, checkpoint=saved)).is_success
    same = routes.path(routes.DIFFERENCES, checkpoint=saved, other=saved)
    assert training.service.ask("GET", same)["items"] == []
    assert not written.exists()


def test_a_long_text_with_markup_is_cut_and_stays_text(training: Training) -> None:
    markup = "<script>alert(1)</script>"
    saved = saved_with(training, [record(markup * 1000, "note"), record("x", markup)])

    found = {item["name"]: item for item in listed(training, saved)}

    assert found["note"]["cut"]
    assert len(found["note"]["text"]) == 2000
    assert found["note"]["size_bytes"] > 25_000
    assert found[markup]["text"] == '"x"'
    answer = training.service.send("GET", routes.path(routes.VALUES, checkpoint=saved))
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("bound", ["MANIFESTS_LIMIT", "MANIFEST_BYTES_LIMIT"])
def test_a_page_reads_a_bounded_number_of_manifests_and_goes_on_from_there(
    training: Training, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    world_size = 5
    by_rank = [[record(rank, "mine", per_rank=True)] for rank in range(world_size)]
    saved = saved_with(training, *by_rank)
    reads: list[int] = []
    original = values._read

    def read(context: Any, row: ManifestRow) -> Any:
        reads.append(row.rank)
        return original(context, row)

    monkeypatch.setattr(values, "_read", read)
    monkeypatch.setattr(values, bound, 2 if bound == "MANIFESTS_LIMIT" else 1)

    first = page(training, saved, search="mine")
    most = len(reads)
    assert most == (2 if bound == "MANIFESTS_LIMIT" else 1)
    assert [item["rank"] for item in first["items"]] == list(range(most))
    assert [item["rank"] for item in listed(training, saved, search="mine")] == list(range(world_size))
    assert page(training, saved, search="nothing")["items"] == []
    assert page(training, saved, search="nothing")["next_cursor"] is not None


def test_a_page_loads_no_lists_of_chunks(training: Training) -> None:
    """They are nearly all of a rank's row: 8 bytes for each of its chunks."""
    saved = saved_with(training, [record(1, "x")])

    with counted(training.service.database) as fetched:
        assert [item["name"] for item in page(training, saved)["items"]] == ["x"]

    [of_manifests] = [statement for statement in fetched.statements if "FROM manifests" in statement]
    assert "chunk_ids" not in of_manifests


def test_a_manifest_that_is_lost_is_an_error_and_never_an_empty_page(training: Training) -> None:
    saved = saved_with(training, [record(1, "x")])
    with training.service.database.read() as session:
        keys = list(session.scalars(select(ManifestRow.object_key)))
    training.service.blob_store.delete(keys)

    training.service.refused("chunk_damaged", "GET", routes.path(routes.VALUES, checkpoint=saved))
