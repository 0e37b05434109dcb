"""The sharded optimizer: ZeRO stages 1, 2 and 3, with masters and state on the device, the host or NVMe."""

from shardkeep.zero.offload import NvmeOffload
from shardkeep.zero.optimizer import ShardedOptimizer
from shardkeep.zero.scaler import GradScaler

__all__ = ["GradScaler", "NvmeOffload", "ShardedOptimizer"]
