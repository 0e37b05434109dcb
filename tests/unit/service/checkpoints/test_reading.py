"""Reading: tensors by prefix and page, load plans by name and region, and nothing of what is not committed."""

from __future__ import annotations

import numpy as np
from sqlalchemy import select

from shardkeep.format.load_plan import LoadRequest, decode_load_plan, encode_load_request
from shardkeep.format.names import join_name
from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.checkpoints.index_cache import IndexCache
from shardkeep_service.checkpoints.models import Checkpoint, ManifestRow
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Part, Training, pack, whole_weight

pytestmark = BOTH_DATABASES

ROW = np.ones((1, 4), np.float32)
NAMES = [join_name(parts) for parts in (("model", "a"), ("model", "b.c"), ("model2", "a"), ("optimizer",))]


def _saved(training: Training) -> str:
    packed = pack([Part(name, (1, 4), 0, ROW) for name in NAMES], rank=0, world_size=1, step=1)
    return training.save(training.start(1), save=1, step=1, world_size=1, packed=[packed])


def _names(training: Training, checkpoint: str, **query: str | int) -> list[str]:
    path = routes.path(routes.TENSORS, checkpoint=checkpoint)
    return [item["name"] for item in training.service.ask("GET", path, query=query)["items"]]


def test_tensors_are_listed_by_name_and_by_whole_leading_parts(training: Training) -> None:
    saved = _saved(training)

    assert _names(training, saved) == NAMES
    assert _names(training, saved, prefix="model") == NAMES[:2]
    assert _names(training, saved, prefix=NAMES[1]) == [NAMES[1]]
    assert _names(training, saved, prefix="mod") == []


def test_E165_an_empty_prefix_is_no_prefix(training: Training) -> None:
    saved = _saved(training)

    assert _names(training, saved, prefix="") == NAMES
    bad = {"prefix": "bad\\"}
    training.service.refused("malformed_request", "GET", routes.path(routes.TENSORS, checkpoint=saved), query=bad)


def test_tensors_come_in_pages(training: Training) -> None:
    saved = _saved(training)
    path = routes.path(routes.TENSORS, checkpoint=saved)

    first = training.service.ask("GET", path, query={"limit": 3})
    second = training.service.ask("GET", path, query={"limit": 3, "cursor": first["next_cursor"]})

    assert [item["name"] for item in first["items"] + second["items"]] == NAMES
    assert second["next_cursor"] is None
    assert first["items"][0] == {
        "name": "model.a",
        "dtype": "float32",
        "shape": [1, 4],
        "kind": "parameter",
        "raw_bytes": 16,
        "slices": 1,
    }
    wrong = {"cursor": first["next_cursor"], "prefix": "model"}
    training.service.refused("invalid_cursor", "GET", path, query=wrong)


def test_E12_a_checkpoint_asked_for_by_id_is_read_whatever_is_latest(training: Training) -> None:
    attempt = training.start()
    older, newer = training.save(attempt, save=1, step=10), training.save(attempt, save=2, step=20)

    assert np.array_equal(training.load(older), whole_weight(10, 2))
    assert np.array_equal(training.load(newer), whole_weight(20, 2))


def test_unknown_names_come_back_in_the_plan(training: Training) -> None:
    path = routes.path(routes.LOAD_PLAN, checkpoint=_saved(training))

    request = encode_load_request(LoadRequest.whole(["nothing", "model.a"]))
    plan = decode_load_plan(training.service.send("POST", path, content=request).content)

    assert plan.unknown == ("nothing",)
    training.service.refused("malformed_request", "POST", path, content=b"nonsense")


def test_E01_what_is_not_committed_is_refused_with_its_state_and_missing_ranks(training: Training) -> None:
    open_one = training.open_all(training.start(3), save=1, step=200, world_size=3)
    packed = training.pack_all(200, 3)
    training.upload(open_one, 1, packed[1])
    training.hand_in(open_one, 1, packed[1])
    request = encode_load_request(LoadRequest.whole(["model.weight"]))

    path = routes.path(routes.LOAD_PLAN, checkpoint=open_one)
    problem = training.service.refused("checkpoint_not_committed", "POST", path, content=request)

    assert (problem["state"], problem["ranks"], problem["checkpoint_id"]) == ("open", [0, 2], open_one)
    assert training.info(open_one)["missing_ranks"] == [0, 2]


def test_an_index_that_is_gone_is_made_again_from_the_manifests(training: Training) -> None:
    saved = _saved(training)
    names = _names(training, saved)
    _lose(training, _index_key(training, saved))

    assert _names(training, saved) == names != []


def test_an_index_that_is_gone_with_its_manifests_is_an_error_and_never_an_empty_answer(training: Training) -> None:
    saved = _saved(training)
    with training.service.database.read() as session:
        manifests = list(session.scalars(select(ManifestRow.object_key).where(ManifestRow.checkpoint_id == saved)))
    key = _index_key(training, saved)
    _lose(training, key, *manifests)

    path = routes.path(routes.TENSORS, checkpoint=saved)
    problem = training.service.refused("chunk_damaged", "GET", path)

    assert key in problem["detail"]


def _index_key(training: Training, checkpoint: str) -> str:
    with training.service.database.read() as session:
        key = session.get_one(Checkpoint, checkpoint).index_key
    assert key is not None
    return key


def _lose(training: Training, *keys: str) -> None:
    training.service.blob_store.delete(list(keys))
    training.service.control.indexes.clear()


def test_indexes_are_kept_within_their_bound(training: Training) -> None:
    attempt = training.start()
    keys = []
    for save in range(4):
        saved = training.save(attempt, save=save, step=save)
        with training.service.database.read() as session:
            keys.append(str(session.get_one(Checkpoint, saved).index_key))
    unbounded = IndexCache(training.service.blob_store)
    unbounded.get(keys[0])
    bounded = IndexCache(training.service.blob_store, limit_bytes=2 * unbounded.held_bytes)

    for key in keys:
        bounded.get(key)

    assert 0 < bounded.held_bytes <= 2 * unbounded.held_bytes
    assert bounded.keys == keys[-2:]


def test_a_token_of_another_project_finds_no_checkpoint(training: Training) -> None:
    saved = _saved(training)
    Training(training.service, project="other")
    headers = {"authorization": f"Bearer {training.service.new_token(Scope.ADMIN, project='other')}"}
    service = training.service

    for method, template in (
        ("GET", routes.CHECKPOINT),
        ("GET", routes.STATE),
        ("GET", routes.TENSORS),
        ("POST", routes.RESTORE),
    ):
        given = {**headers, "if-match": '"1"'}
        service.refused("unknown_checkpoint", method, routes.path(template, checkpoint=saved), headers=given)
    service.refused(
        "unknown_checkpoint", "GET", routes.path(routes.MANIFEST, checkpoint=saved, rank=0), headers=headers
    )
    beat = routes.path(routes.BEAT, checkpoint=saved, rank=0)
    service.refused("unknown_checkpoint", "POST", beat, headers=headers)
