"""Inventories through the client: ranks that never come do not keep the others waiting for ever."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import SaveFailed
from shardkeep.protocol.identifiers import new_launch_id
from shardkeep.protocol.messages import InventoryTensor, PostInventory
from shardkeep.store.attempt import Attempt
from shardkeep.store.world import World
from tests.service_process import ServiceProcess


def test_a_rank_whose_peer_never_posts_is_told_which_one_after_a_bounded_time(shared_service: ServiceProcess) -> None:
    with sk.connect(shared_service.url, shared_service.token) as client:
        run = client.run("inventories/lonely")
        world = World(0, 2, new_launch_id())
        begun = run.begin_attempt(world)
        settings = replace(client.settings, peer_seconds=0.5)
        attempt = Attempt(client.service, begun.info, rank=0, settings=settings)
        held = InventoryTensor(name="w", dtype=np.dtype("float32").name, shape=[4], kind=5)
        with pytest.raises(SaveFailed, match="inventories of ranks 1 for"):
            attempt.inventory(0, PostInventory(tensors=[held]))
