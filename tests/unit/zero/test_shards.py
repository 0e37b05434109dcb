"""Shards in memory and on NVMe under the one contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shardkeep.zero import NvmeOffload
from shardkeep.zero.collectives import Collectives
from shardkeep.zero.layout import Bucket, Layout
from shardkeep.zero.nvme import NvmeStore, open_store
from tests.contracts.shard_contract import ShardContract


class TestMemoryShard(ShardContract):
    @pytest.fixture
    def where(self) -> None:
        """Beside the parameters, which are their own masters."""
        return


class TestMemoryShardWithMasters(TestMemoryShard):
    dtype = torch.bfloat16


class TestNvmeShard(ShardContract):
    @pytest.fixture
    def where(self, layout: Layout, bucket: Bucket, tmp_path: Path) -> Iterator[NvmeStore]:
        """Within a budget that takes several tiles."""
        offload = NvmeOffload(tmp_path, 40_000)
        store = open_store(
            offload, Collectives(), torch.device("cpu"), kind=layout.kind, gathers=False, wire_dtype=None
        )
        store.fit(layout, [])
        assert len(list(store.plan_tiles(bucket, bucket.part(0)))) > 1
        yield store
        store.close()


class TestNvmeShardWithMasters(TestNvmeShard):
    dtype = torch.bfloat16
