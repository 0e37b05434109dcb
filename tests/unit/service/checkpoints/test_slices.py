"""The slices of a tensor: who stored which region, and where its bytes are."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardkeep.format.names import join_name
from shardkeep.format.segments import SEGMENT_BYTES, SliceKind
from shardkeep.protocol import routes
from shardkeep_service.checkpoints.slices import LISTED_CHUNKS
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.training import Part, Training, pack

pytestmark = BOTH_DATABASES


def _page(training: Training, checkpoint: str, tensor: str, **query: str | int) -> dict[str, Any]:
    path = routes.path(routes.SLICES, checkpoint=checkpoint)
    return training.service.ask("GET", path, query={"tensor": tensor, **query})


def test_slices_say_who_stored_which_region_and_in_which_chunks(training: Training) -> None:
    saved = training.save(training.start(3), save=1, step=5, world_size=3)

    first = _page(training, saved, "model.weight", limit=2)
    second = _page(training, saved, "model.weight", limit=2, cursor=first["next_cursor"])

    chunks = [ref.digest for one in training.pack_all(5, 3) for ref, _ in one.chunks]
    assert second["next_cursor"] is None
    assert first["items"] + second["items"] == [
        {
            "rank": rank,
            "offsets": [2 * rank, 0],
            "sizes": [2, 4],
            "raw_bytes": 32,
            "stored_bytes": 32,
            "segments": 1,
            "codecs": ["raw"],
            "chunks": [chunks[rank]],
            "chunk_count": 1,
        }
        for rank in range(3)
    ]


def test_of_equal_replicas_one_is_listed_and_of_buffers_that_differ_each(training: Training) -> None:
    row = np.ones((1, 4), np.float32)
    packed = [
        pack(
            [
                Part("b", (1, 4), 0, row * rank, kind=SliceKind.BUFFER),
                Part("w", (1, 4), 0, row, witness=rank == 1),
                Part("z", (0, 4), 0, row[:0]),
            ],
            rank=rank,
            world_size=2,
            step=1,
        )
        for rank in range(2)
    ]
    saved = training.save(training.start(), save=1, step=1, packed=packed)

    assert [item["rank"] for item in _page(training, saved, "w")["items"]] == [0]
    assert [item["rank"] for item in _page(training, saved, "b")["items"]] == [0, 1]
    assert _page(training, saved, "z") == {"items": [], "next_cursor": None}


def test_segments_are_counted_and_a_slice_in_many_chunks_lists_the_first(training: Training) -> None:
    rows = 2 * SEGMENT_BYTES // 16 + 1
    big = Part("big", (rows, 4), 0, np.zeros((rows, 4), np.float32))
    packed = [pack([big], rank=0, world_size=1, step=1)]
    saved = training.save(training.start(1), save=1, step=1, world_size=1, packed=packed)

    [item] = _page(training, saved, "big")["items"]

    assert (item["segments"], item["raw_bytes"], item["chunk_count"]) == (3, rows * 16, 1)
    assert len(item["chunks"]) <= LISTED_CHUNKS


def test_E186_a_name_is_looked_up_exactly_and_is_no_path(training: Training) -> None:
    name = join_name(("model", "a.b"))
    packed = [pack([Part(name, (1, 4), 0, np.ones((1, 4), np.float32))], rank=0, world_size=1, step=1)]
    saved = training.save(training.start(1), save=1, step=1, world_size=1, packed=packed)
    path = routes.path(routes.SLICES, checkpoint=saved)

    assert len(_page(training, saved, name)["items"]) == 1
    for tensor in ("model.a.b", "model", "", "../../shardkeep.db", "/etc/passwd", "a\x00b", "%2e%2e", "x" * 4096):
        training.service.refused("unknown_tensor", "GET", path, query={"tensor": tensor})
    training.service.refused("malformed_request", "GET", path, query={"tensor": "x" * 4097})
    training.service.refused("malformed_request", "GET", path)
